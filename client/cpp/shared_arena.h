// Blocks of shared memory for tensors, carved first-fit out of as few SharedRegions as it takes.
// In the path: a caller allocates x and y here, fills x, and names both in its request.
// Threads: safe from any thread, freeing included. Blocks keep their region and may outlive the arena.
#ifndef NORMD_CLIENT_CPP_SHARED_ARENA_H_
#define NORMD_CLIENT_CPP_SHARED_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace normd::client {

struct SharedArenaOptions {
  int64_t region_bytes = int64_t{64} << 20;  // of each region; a larger block gets a region of its own size
  int64_t max_total_bytes = int64_t{1} << 30;
  absl::Duration timeout = absl::Seconds(5);  // of registering a region
};

// A part of a region, freed on destruction. Move-only. Free it only when no request uses it any more.
class SharedBlock {
 public:
  SharedBlock() = default;
  SharedBlock(SharedBlock&&) noexcept;
  SharedBlock& operator=(SharedBlock&&) noexcept;
  ~SharedBlock();

  const std::string& region() const;  // for SharedRange.region
  int64_t offset() const { return offset_; }
  int64_t size_bytes() const { return size_bytes_; }  // as asked for
  bool registered() const;                            // false: the server has dropped the region, as when it restarts
  std::byte* data() const { return data_; }           // 64-byte-aligned; what it held before is still there

 private:
  friend class SharedArena;
  struct Shelf;
  std::shared_ptr<Shelf> shelf_;  // one region and its free parts
  int64_t offset_ = 0;
  int64_t size_bytes_ = 0;
  int64_t taken_bytes_ = 0;  // with what rounding added
  std::byte* data_ = nullptr;
};

class SharedArena {
 public:
  // Registers the first region, so that a server without shared memory is known at once: the errors of
  // SharedRegion::Create.
  static absl::StatusOr<std::unique_ptr<SharedArena>> Create(const std::string& unix_target,
                                                             const SharedArenaOptions& options = {});
  ~SharedArena();
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;

  // INVALID_ARGUMENT for a size below 1, RESOURCE_EXHAUSTED at max_total_bytes, and the errors of
  // SharedRegion::Create where another region is needed.
  absl::StatusOr<SharedBlock> Allocate(int64_t size_bytes);

  bool Owns(const SharedBlock& block) const;
  // Gives no more blocks: Allocate is UNAVAILABLE. A part that is freed after this is never given out again, and the
  // regions go with the blocks that are left.
  void Close();

 private:
  struct State;
  explicit SharedArena(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_SHARED_ARENA_H_
