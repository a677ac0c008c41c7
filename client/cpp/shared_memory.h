// Tensors in memory that the server maps, instead of in messages. Two ways: SetShared names a block of the caller's,
// who keeps tensors there from the start (Client::AllocateShared); SharedCalls copies large tensors in and results
// back, for callers who do not want to know (ClientOptions::shared_memory). In the path: Client::Normalize asks
// SharedCalls for a SharedCall, sends its request, and takes the results out of it. Threads: SharedMemory and
// SharedCalls are safe from any thread, a SharedCall belongs to one.
#ifndef NORMD_CLIENT_CPP_SHARED_MEMORY_H_
#define NORMD_CLIENT_CPP_SHARED_MEMORY_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/shared_arena.h"
#include "normd/v1/normalizer.pb.h"

namespace normd::client {

// Names the whole block as the payload of `tensor`, or as the place of an output. While a request is under way the
// caller reads no output and changes no input; after one that ended with DEADLINE_EXCEEDED, CANCELLED or UNAVAILABLE
// the server may still be at it, and only a block that was never named in it is safe to use.
void SetShared(const SharedBlock& block, v1::Tensor* tensor);
void SetShared(const SharedBlock& block, v1::OutputRequest* output);

// Whether the request itself names shared memory.
bool NamesSharedMemory(const v1::NormalizeRequest& request);

// Whether the server said that it does not know the region that the request names: it was restarted.
bool IsRegionLost(const absl::Status& status);

// The arena of one server: made when it is first needed, and again after it was lost.
class SharedMemory {
 public:
  SharedMemory(std::string target, SharedArenaOptions options);

  // A block of a region that the server still had a moment ago. The errors of SharedArena::Create and Allocate.
  absl::StatusOr<SharedBlock> Allocate(int64_t size_bytes) { return AllocateFrom(&SharedMemory::Ask, size_bytes); }

  // The same for callers that can do without: at once, but for the one that registers, and not after a failure.
  // PERMISSION_DENIED, INVALID_ARGUMENT (the target is no Unix socket) and whatever else waiting does not mend are for
  // good. After UNAVAILABLE (which a server that starts looks like, too) and RESOURCE_EXHAUSTED, and after an arena was
  // abandoned, the server is asked again: in 100 ms, later in up to 10 s.
  absl::StatusOr<SharedBlock> TryAllocate(int64_t size_bytes) {
    return AllocateFrom(&SharedMemory::AskIfItIsTime, size_bytes);
  }

  // The arena that `block` is of gives no more blocks. Its regions go with the blocks that are left.
  void Abandon(const SharedBlock& block);

 private:
  using Arena = std::shared_ptr<SharedArena>;

  using Get = absl::StatusOr<Arena> (SharedMemory::*)();

  absl::StatusOr<SharedBlock> AllocateFrom(Get get, int64_t size_bytes);
  absl::StatusOr<Arena> Ask();
  absl::StatusOr<Arena> AskIfItIsTime();
  // REQUIRES: `lock` holds mu_, there is no arena, and nobody makes one.
  absl::StatusOr<Arena> Make(std::unique_lock<std::mutex>& lock);
  void Drop(const Arena& arena);
  void SetNextTry();  // REQUIRES: mu_ is held

  const std::string target_;
  const SharedArenaOptions options_;

  // Guarded by mu_, which is not held while the server is asked.
  std::mutex mu_;
  std::condition_variable made_;
  Arena arena_;
  bool making_ = false;
  absl::Status failure_;  // why there is no arena
  absl::Time made_at_ = absl::InfinitePast();
  absl::Time next_try_ = absl::InfinitePast();  // InfiniteFuture: for good
  absl::Duration backoff_;
};

// One request with its large tensors in shared memory.
class SharedCall {
 public:
  // For the wire.
  const v1::NormalizeRequest& request() const { return request_; }

  // How an attempt ended. Unless it is certain that the server is done with the blocks, Finish gives their region up.
  void Note(const absl::Status& status);

  // Outputs become data, as if they had been sent.
  void TakeResults(v1::NormalizeResponse* response) const;

  // Whether the request is to be sent again inline: the server knows the region no more, or minds the ranges. It has
  // changed nothing then.
  static bool IsToBeSentInline(const absl::Status& status);

 private:
  friend class SharedCalls;
  struct SharedOutput {
    v1::OutputKind kind;
    SharedBlock block;
  };
  v1::NormalizeRequest request_;
  std::vector<SharedBlock> inputs_;
  std::vector<SharedOutput> outputs_;
  bool certain_ = true;
};

class SharedCalls {
 public:
  explicit SharedCalls(SharedMemory* memory) : memory_(memory) {}

  // The request in shared memory; nothing: it is better sent as it is.
  std::optional<SharedCall> Begin(const v1::NormalizeRequest& request);
  // After the last attempt. On an uncertain end the whole region is given up, and later calls get a new one: the server
  // drops the old one when its connection closes, which is when the last block of it goes, and keeps its own mapping
  // until requests that use it have finished. Nothing that they write can meet a later call, as no memory is used
  // twice. That costs a registration after a deadline, and needs no answer from a server that may be stuck.
  void End(SharedCall call);

 private:
  absl::Status ShareTensors(const v1::NormalizeRequest& request, SharedCall* call);
  absl::StatusOr<SharedBlock> CopyIn(const v1::Tensor& tensor);

  SharedMemory* const memory_;
};

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_SHARED_MEMORY_H_
