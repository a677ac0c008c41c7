// The use case in one place: plan, execute, commit. The only code where execution and sessions meet.
// In the path: rpc decodes a Call, Submit runs it, Done hands the reply back for encoding. No gRPC here.
// Threads: every method is safe from any thread; Done runs exactly once, inline or on a backend, pool or store thread,
// with no lock held. Nothing blocks, and nothing in proportion to a tensor runs on the thread that submits or on one of
// the store's, but for calls of at most the scheduler's inline_elements().
#ifndef NORMD_SERVER_ENGINE_ENGINE_H_
#define NORMD_SERVER_ENGINE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/resources.h"
#include "server/engine/call.h"
#include "server/schedule/device_scheduler.h"
#include "server/session/session_store.h"

namespace normd {

class ConcurrencyLimiter;
class ParameterCache;
struct EngineParts;

struct EngineOptions {
  // Computed at one time, of the calls that the scheduler does not run inline.
  int max_large_calls = 4;
  absl::Duration max_queue_age = absl::InfiniteDuration();  // how long one may wait before it is refused
};

// One training step's moments out of several callers': what they computed on their parts of the batch.
struct PooledStep {
  std::string session;  // its id
  std::vector<Moments> parts;
  std::optional<StepId> step;
  std::optional<uint64_t> expected_version;
  std::function<bool()> cancelled;  // null: never; see StateUpdate
};

class Engine {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<CallReply>)>;
  using BatchDone = absl::AnyInvocable<void(std::vector<absl::StatusOr<CallReply>>)>;

  // Borrows the three, which must outlive the engine. REQUIRES: everything submitted is done before destruction.
  Engine(DeviceScheduler* scheduler, SessionStore* sessions, Resources* resources, const EngineOptions& options = {});
  ~Engine();

  // Moves from `call` when it is called, not when its arguments are made: `done` may still copy from it.
  void Submit(Call&& call, Done done);

  // All calls as one Work for the scheduler; a result for each, in order; bytes equal those of single calls. Training
  // steps to one session inside a batch are committed in item order.
  void SubmitBatch(std::vector<Call> calls, BatchDone done);

  // Sessions. Errors are those of the store's Create, Get and so on, and of the checks named here, whose fields
  // are in `session` ("session.spec.batch_norm.eps", "session.num_channels"); Done as there.
  template <typename T>
  using SessionDone = SessionStore::Done<T>;
  // Checks spec, C and the lengths of parameters before the store sees the session.
  void CreateSession(Session session, SessionDone<SessionPtr> done);
  void GetSession(std::string id, SessionStore::Cancelled cancelled, SessionDone<SessionPtr> done);
  void ListSessions(ListQuery query, SessionDone<ListPage> done);
  // Checks the lengths of parameters against the session's spec. ABORTED where another session has taken its place.
  void UpdateSession(std::string id, SessionPatch patch, SessionDone<SessionPtr> done);
  void ResetSession(std::string id, std::optional<uint64_t> expected_version, SessionDone<SessionPtr> done);
  // A fork starts with the state, parameters and labels of its origin, at version 0 and without its step ids: it is
  // another session from then on. `fork_id` empty: chosen.
  void ForkSession(std::string id, std::string fork_id, SessionDone<SessionPtr> done);
  void DeleteSession(std::string id, std::optional<uint64_t> expected_version, SessionDone<SessionPtr> done);
  // Merges the parts in the order given and commits the result as one step. Also INVALID_ARGUMENT "session" where it
  // has no running state, "moments[i]" where the parts differ in length.
  void CommitMoments(PooledStep step, SessionDone<CommitResult> done);
  void ExportSession(std::string id, SessionStore::Reserve reserve, SessionDone<std::string> done);
  void ImportSession(std::string id, std::string record, SessionDone<SessionPtr> done);

  // The checks alone, with field paths relative to the session ("num_channels").
  absl::Status ValidateNewSession(const Session& session) const;
  absl::Status ValidatePatch(const Session& session, const SessionPatch& patch) const;
  // What sessions survive, and how large they may be.
  Durability durability() const { return sessions_->durability(); }
  const SessionLimits& session_limits() const { return sessions_->limits(); }

 private:
  // A call that was prepared before, and runs inline.
  void SubmitPrepared(Call&& call, Done done);
  EngineParts parts();

  DeviceScheduler* const scheduler_;
  SessionStore* const sessions_;
  Resources* const resources_;
  std::unique_ptr<ParameterCache> parameters_;
  SteadyClock clock_;
  const std::unique_ptr<ConcurrencyLimiter> limiter_;
};

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_ENGINE_H_
