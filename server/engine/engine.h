// The use case in one place: plan, execute, commit. The only code where execution and sessions meet.
// In the path: rpc decodes a Call, Submit runs it, Done hands the reply back for encoding. No gRPC here.
// Threads: every method is safe from any thread; Done runs exactly once, inline or on a backend, pool or store thread,
// with no lock held. Nothing blocks, and nothing in proportion to a tensor runs on the thread that submits or on one of
// the store's, but for calls of at most the scheduler's inline_elements().
#ifndef NORMD_SERVER_ENGINE_ENGINE_H_
#define NORMD_SERVER_ENGINE_ENGINE_H_

#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/buffer.h"
#include "server/base/clock.h"
#include "server/base/work_pool.h"
#include "server/engine/call.h"
#include "server/schedule/device_scheduler.h"
#include "server/session/session_store.h"

namespace normd {

class Gate;
class ParameterCache;
struct Ground;

struct EngineOptions {
  // Computed at one time, of the calls that the backend does not run inline.
  int max_large_calls = 4;
  absl::Duration max_queue_age = absl::InfiniteDuration();  // how long one may wait before it is refused
  int64_t max_idle_buffer_bytes = int64_t{64} << 20;        // of output blocks kept for the next calls
};

class Engine {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<CallReply>)>;
  using BatchDone = absl::AnyInvocable<void(std::vector<absl::StatusOr<CallReply>>)>;

  // Borrows both; they must outlive the engine. REQUIRES: every submitted call is done before destruction.
  Engine(DeviceScheduler* scheduler, SessionStore* sessions, const EngineOptions& options = {});
  ~Engine();

  // Moves from `call` when it is called, not when its arguments are made: `done` may still copy from it.
  void Submit(Call&& call, Done done);

  // All calls as one job list for the backend; a result for each, in order; bytes equal those of single calls. Training
  // steps to one session inside a batch are committed in item order.
  void SubmitBatch(std::vector<Call> calls, BatchDone done);

  // Checks a new session before the store sees it: spec, C, parameter lengths. Field paths are relative to the Session
  // message ("spec.batch_norm.eps", "num_channels", "parameters.weight").
  absl::Status ValidateNewSession(const Session& session) const;
  // The same for an update of parameters.
  absl::Status ValidatePatch(const Session& session, const SessionPatch& patch) const;

  SessionStore& sessions() { return *sessions_; }
  // Where tensors get their memory.
  BufferPool& buffers() { return *buffers_; }
  // Who does what takes time in proportion to bytes and is no kernel.
  WorkPool& work_pool() { return work_pool_; }

 private:
  // A call that was prepared before, and runs inline.
  void SubmitPrepared(Call&& call, Done done);
  Ground ground();

  DeviceScheduler* const scheduler_;
  SessionStore* const sessions_;
  std::unique_ptr<ParameterCache> parameters_;
  const std::shared_ptr<BufferPool> buffers_;
  SteadyClock clock_;
  const std::unique_ptr<Gate> gate_;
  WorkPool work_pool_{WorkPool::DefaultThreads()};  // last: its threads use all of the above
};

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_ENGINE_H_
