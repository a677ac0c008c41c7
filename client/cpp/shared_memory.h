// Tensors in memory that the server maps, instead of in messages. There are two ways. Callers may keep their tensors in
// SharedBlocks from the start and name them with SetShared:
//
//   constexpr int64_t bytes = 256 * 1024 * sizeof(float);
//   normd::client::SharedBlock x = client->AllocateShared(bytes).value(), y = client->AllocateShared(bytes).value();
//   FillWithData(x.data());
//   normd::v1::NormalizeRequest request;
//   request.mutable_spec()->mutable_rms_norm();
//   request.mutable_x()->set_dtype(normd::v1::DTYPE_F32);
//   request.mutable_x()->add_shape(256);
//   request.mutable_x()->add_shape(1024);
//   normd::client::SetShared(x, request.mutable_x());
//   normd::v1::OutputRequest* output = request.add_outputs();
//   output->set_kind(normd::v1::OUTPUT_KIND_Y);
//   normd::client::SetShared(y, output);                 // x again: y in place
//   if (client->Normalize(request).ok()) Use(y.data());  // the reply itself carries no bytes of y
//
// Or they set ClientOptions::shared_memory, and Client::Normalize copies large tensors into blocks and results back.
// The classes below do that work for the Client; applications need only SetShared.
// In the path: Client::Normalize asks SharedCalls for a SharedCall, sends its request, and takes the results out of it.
// Threads: SharedMemory and SharedCalls are safe from any thread; a SharedCall belongs to one thread.
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

// Names the whole block as the payload of `tensor`, or as the place of an output. The block must have exactly as many
// bytes as the tensor or output, and must outlive the request. While a request runs, the caller reads none of its
// outputs and changes none of its inputs. After DEADLINE_EXCEEDED, CANCELLED or UNAVAILABLE the server may still be
// reading and writing the request's blocks: do not use them again, and do not free them, which would hand their memory
// to the next Allocate.
void SetShared(const SharedBlock& block, v1::Tensor* tensor);
void SetShared(const SharedBlock& block, v1::OutputRequest* output);

// True if any tensor or output of `request` lies in shared memory.
bool NamesSharedMemory(const v1::NormalizeRequest& request);

// True if the server does not know the region that the request names, for instance because it restarted.
bool IsRegionLost(const absl::Status& status);

// Holds the arena of one server: makes it on first use, and replaces it after it was lost. Safe from any thread.
class SharedMemory {
 public:
  SharedMemory(std::string target, SharedArenaOptions options);

  // A block of a region that was registered a moment ago. Blocks while the arena is made. Errors of SharedArena::Create
  // and Allocate.
  absl::StatusOr<SharedBlock> Allocate(int64_t size_bytes) { return AllocateFrom(&SharedMemory::Ask, size_bytes); }

  // As Allocate, for callers that can do without shared memory: returns at once, except for a call that registers a
  // region, and does not ask again right after a failure. UNAVAILABLE (also the answer of a server that is starting),
  // RESOURCE_EXHAUSTED and an abandoned arena are tried again after 100 ms, later after up to 10 s. Every other failure
  // is final, for instance PERMISSION_DENIED and INVALID_ARGUMENT (the target is not a Unix socket).
  absl::StatusOr<SharedBlock> TryAllocate(int64_t size_bytes) {
    return AllocateFrom(&SharedMemory::AskIfItIsTime, size_bytes);
  }

  // Ends allocation from the arena that `block` belongs to. Its regions are released with the last of their blocks.
  void Abandon(const SharedBlock& block);

 private:
  using Arena = std::shared_ptr<SharedArena>;

  using Get = absl::StatusOr<Arena> (SharedMemory::*)();

  absl::StatusOr<SharedBlock> AllocateFrom(Get get, int64_t size_bytes);
  absl::StatusOr<Arena> Ask();
  absl::StatusOr<Arena> AskIfItIsTime();
  // REQUIRES: `lock` locks mu_, there is no arena, and no thread is making one.
  absl::StatusOr<Arena> Make(std::unique_lock<std::mutex>& lock);
  void Drop(const Arena& arena);
  void SetNextTry();  // REQUIRES: mu_ is held

  const std::string target_;
  const SharedArenaOptions options_;

  // Guarded by mu_, which is unlocked while the server is asked.
  std::mutex mu_;
  std::condition_variable made_;
  Arena arena_;
  bool making_ = false;
  absl::Status failure_;  // why there is no arena
  absl::Time made_at_ = absl::InfinitePast();
  absl::Time next_try_ = absl::InfinitePast();  // InfiniteFuture: never
  absl::Duration backoff_;
};

// One request whose large tensors are in shared memory.
class SharedCall {
 public:
  // The request to send.
  const v1::NormalizeRequest& request() const { return request_; }

  // Records how an attempt ended. SharedCalls::End abandons the region unless the server is certain to be done with the
  // blocks.
  void Note(const absl::Status& status);

  // Turns outputs in shared memory into inline data, as if they had been sent.
  void TakeResults(v1::NormalizeResponse* response) const;

  // True if the request should be sent again inline: the server does not know the region any more, or refuses the
  // ranges. The refused request has changed nothing.
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
  // False once an attempt ended while the server might still use the blocks.
  bool certain_ = true;
};

// Moves the large tensors of requests into shared memory and back. Borrows `memory`. Safe from any thread.
class SharedCalls {
 public:
  explicit SharedCalls(SharedMemory* memory) : memory_(memory) {}

  // `request` in shared memory. nullopt if it is better sent as it is: x is small, the request only validates or names
  // shared memory itself, or there is no shared memory now.
  std::optional<SharedCall> Begin(const v1::NormalizeRequest& request);
  // Call after the last attempt. If the end is uncertain, the whole region is abandoned and later calls get a new one.
  // The server drops the old region when its connection closes, which happens with the region's last block, and keeps
  // its own mapping until the requests that use it have finished. No memory is used twice, so nothing that those
  // requests write can reach a later call. This costs one registration after a deadline, and needs no answer from a
  // server that may be stuck.
  void End(SharedCall call);

 private:
  absl::Status ShareTensors(const v1::NormalizeRequest& request, SharedCall* call);
  absl::StatusOr<SharedBlock> CopyIn(const v1::Tensor& tensor);

  SharedMemory* const memory_;
};

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_SHARED_MEMORY_H_
