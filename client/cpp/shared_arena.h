// Blocks of memory shared with the server, for tensors. An arena allocates them first-fit from as few registered
// regions as possible.
// In the path: a caller allocates blocks for x and y, fills x, and names both in its request (<normd/shared_memory.h>
// has an example). Applications get blocks from Client::AllocateShared, which keeps an arena and replaces it when the
// server restarts.
// Threads: a SharedArena is safe from any thread, and blocks may be freed on any thread; otherwise a SharedBlock is
// thread-compatible.
// Ownership: a block keeps its region mapped and registered, and may outlive the arena and the Client.
#ifndef NORMD_CLIENT_CPP_SHARED_ARENA_H_
#define NORMD_CLIENT_CPP_SHARED_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace normd::client {

// Sizes are in bytes.
struct SharedArenaOptions {
  int64_t region_bytes = int64_t{64} << 20;    // the size of each region; a larger block gets a region of its own size
  int64_t max_total_bytes = int64_t{1} << 30;  // of all regions together
  absl::Duration timeout = absl::Seconds(5);   // for registering one region
};

// A part of a shared region, freed on destruction. Move-only. Free it only when no request uses it any more: the next
// Allocate may hand the same memory out. After an uncertain end of a request (see SetShared) keep it.
class SharedBlock {
 public:
  // An empty block: data() is null, size_bytes() is 0. REQUIRES for region() and registered(): the block is not empty.
  SharedBlock() = default;
  SharedBlock(SharedBlock&&) noexcept;
  SharedBlock& operator=(SharedBlock&&) noexcept;
  ~SharedBlock();

  const std::string& region() const;                  // for SharedRange.region
  int64_t offset() const { return offset_; }          // for SharedRange.offset
  int64_t size_bytes() const { return size_bytes_; }  // the size that was asked for
  // False if the server has dropped the region, for instance because it restarted. A system call.
  bool registered() const;
  // 64-byte-aligned. Not cleared: the block holds the bytes of its previous use.
  std::byte* data() const { return data_; }

 private:
  friend class SharedArena;
  struct Shelf;
  std::shared_ptr<Shelf> shelf_;  // one region and its free parts
  int64_t offset_ = 0;
  int64_t size_bytes_ = 0;
  int64_t taken_bytes_ = 0;  // size_bytes_ rounded up
  std::byte* data_ = nullptr;
};

// Allocates blocks for one server. Regions are kept for later blocks until the arena and all of their blocks are gone.
class SharedArena {
 public:
  // Registers the first region, so that a server without shared memory is found at once. `unix_target` is the server's
  // "unix:/path". INVALID_ARGUMENT for other targets, UNAVAILABLE if no server takes registrations there or none
  // answers within the timeout, PERMISSION_DENIED if this user may not connect, RESOURCE_EXHAUSTED when memory or a
  // limit of the server is reached, and other errors of the server.
  static absl::StatusOr<std::unique_ptr<SharedArena>> Create(const std::string& unix_target,
                                                             const SharedArenaOptions& options = {});
  ~SharedArena();
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;

  // INVALID_ARGUMENT for a size below 1 or above max_total_bytes, RESOURCE_EXHAUSTED when another region would exceed
  // max_total_bytes, UNAVAILABLE after Close, and the errors of Create if another region is needed.
  absl::StatusOr<SharedBlock> Allocate(int64_t size_bytes);

  // True if `block` is part of a region of this arena. False after Close.
  bool Owns(const SharedBlock& block) const;
  // Ends allocation: Allocate returns UNAVAILABLE. Parts that are freed afterwards are never handed out again, and each
  // region is released with the last of its blocks.
  void Close();

 private:
  struct State;
  explicit SharedArena(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_SHARED_ARENA_H_
