// The use cases in one place: plan, execute and commit a call, and the operations on sessions. The only code where
// execution and sessions meet.
// In the path: the codec decodes a Call, Submit runs it, Done hands the reply back for encoding. No gRPC here.
// Threads: every method is safe from any thread. Done runs exactly once, inline or on a backend, pool or store thread,
// with no lock held. Nothing blocks. Work in proportion to a tensor runs neither on the submitting thread nor on a
// store thread, except in calls of at most the scheduler's inline_elements().
#ifndef NORMD_SERVER_ENGINE_ENGINE_H_
#define NORMD_SERVER_ENGINE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/resources.h"
#include "server/base/wait_stats.h"
#include "server/engine/call.h"
#include "server/engine/change_listener.h"
#include "server/engine/pooled_step.h"
#include "server/schedule/device_scheduler.h"
#include "server/session/session_store.h"

namespace normd {

class ConcurrencyLimiter;
class EventPoller;
class ParameterCache;
struct EngineParts;

// One training step of a session, as it ended.
struct StepReport {
  std::string_view session;  // its id
  bool replayed = false;
  Reason reason = Reason::kApplied;
  std::optional<double> drift;  // DriftOf the session before the step; absent for a step that was not applied now
  // Of a step that was applied now to a session that counts samples: the most samples of a channel. Else absent.
  std::optional<double> samples;
};

// Null functions are not called. They run on any thread, several at a time, and must not block.
struct EngineObserver {
  std::function<void(const StepReport& step)> on_step;
  // Statistics that a call computed were not all finite. Known only of calls that compute moments: training steps on
  // sessions, ComputeMoments, and calls that ask for moments.
  std::function<void()> on_not_finite;
};

struct EngineOptions {
  // Large computations that run at once. Those that the scheduler runs inline do not count.
  int max_large_calls = 4;
  absl::Duration max_queue_age = absl::InfiniteDuration();  // a computation that waits longer is refused
  // A call that waits longer for its events is refused, however far its deadline is, so that no caller keeps calls
  // here for ever. A minute is far beyond the work that a caller has queued on a device when it sends a request.
  absl::Duration max_event_wait = absl::Minutes(1);
  EngineObserver observer = {};
};

class Engine {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<CallReply>)>;
  using BatchDone = absl::AnyInvocable<void(std::vector<absl::StatusOr<CallReply>>)>;

  // Borrows all three pointers, which must outlive the engine. REQUIRES: every Done has run before destruction.
  Engine(DeviceScheduler* scheduler, SessionStore* sessions, Resources* resources, const EngineOptions& options = {});
  ~Engine();

  // Runs `call` once its events have completed. FAILED_PRECONDITION (CudaEventPendingError) if that takes longer than
  // EngineOptions::max_event_wait; the deadline and cancellation end the wait, too. Submit moves from `call` itself,
  // not while its arguments are made, so the expression for `done` may still copy from `call`.
  void Submit(Call&& call, Done done);

  // Runs all calls as one Work for the scheduler and returns one result per call, in order; the bytes of each equal
  // those of a single call. Training steps on one session inside a batch are committed in item order. REQUIRES: all
  // calls belong to one request: they share caller, deadline and cancellation. The batch waits for the events of all of
  // its calls.
  void SubmitBatch(std::vector<Call> calls, BatchDone done);

  // Session operations; ids are keys (server/session/session_key.h). Done runs as SessionStore says. Errors are those
  // of the store's methods and of the checks named here; the checks name fields in `session`
  // ("session.spec.batch_norm.eps", "session.num_channels").
  template <typename T>
  using SessionDone = SessionStore::Done<T>;
  // Checks spec, number of channels, parameter lengths, given state and ttl before the store sees the session. Asks
  // `reserve` before it makes statistics, of which the request has no byte; the memory is needed until `done` has run.
  void CreateSession(Session session, SessionStore::Reserve reserve, SessionDone<SessionPtr> done);
  void GetSession(std::string id, SessionStore::Cancelled cancelled, SessionDone<SessionPtr> done);
  // The newest version that this server has, which is that of its own last change or a later one.
  void GetKnownSession(std::string id, SessionDone<SessionPtr> done);
  void ListSessions(ListQuery query, SessionDone<ListPage> done);
  // Checks parameter lengths and ttl against the session's spec. ABORTED if another session has taken the id meanwhile.
  void UpdateSession(std::string id, SessionPatch patch, SessionDone<SessionPtr> done);
  void ResetSession(std::string id, std::optional<uint64_t> expected_version, SessionDone<SessionPtr> done);
  // Creates another session with the state, parameters and labels of `id`, at version 0 and without its step ids. The
  // store chooses the id if `fork.id` is a SessionKey without an id. `reserve` is asked as by CreateSession.
  struct Fork {
    std::string id;
    bool frozen = false;
  };
  void ForkSession(std::string id, Fork fork, SessionStore::Reserve reserve, SessionDone<SessionPtr> done);
  void DeleteSession(std::string id, std::optional<uint64_t> expected_version, SessionDone<SessionPtr> done);
  // Commits the update that UpdateOf makes of the step, as one step; its errors are added to the store's.
  void CommitMoments(PooledStep step, SessionDone<PooledReply> done);
  void ExportSession(std::string id, SessionStore::Reserve reserve, SessionDone<std::string> done);
  void ImportSession(std::string id, std::string record, SessionDone<SessionPtr> done);

  // Reports every change of a session that this engine makes to `listener`, which is borrowed; null: to nobody.
  // REQUIRES: no call is running.
  void ReportChanges(const ChangeListener* listener) { changes_.Set(listener); }

  // The large calls that wait for their turn now.
  WaitStats wait_stats() const;

  // The checks of CreateSession and UpdateSession alone; field paths are relative to the session ("num_channels").
  absl::Status ValidateNewSession(const Session& session) const;
  absl::Status ValidatePatch(const Session& session, const SessionPatch& patch) const;
  // What sessions survive, and the limits on their sizes.
  Durability durability() const { return sessions_->durability(); }
  SessionLimits session_limits() const { return sessions_->limits(); }

 private:
  // Answers a pooled step of which the state is wanted. `before` is the session as it was read for the step.
  void ReadCommitted(const Session& before, CommitResult result, SessionDone<PooledReply> done);
  // Submits a call that was prepared before and runs inline.
  void SubmitPrepared(Call&& call, Done done);
  EngineParts parts();

  // Reports a change of the session `id` that was made, before `done` runs.
  SessionDone<SessionPtr> Reporting(const std::string& id, SessionDone<SessionPtr> done);

  const EngineObserver observer_;
  ChangeReports changes_;
  DeviceScheduler* const scheduler_;
  SessionStore* const sessions_;
  Resources* const resources_;
  std::unique_ptr<ParameterCache> parameters_;
  SteadyClock clock_;
  const std::unique_ptr<ConcurrencyLimiter> limiter_;
  const absl::Duration max_event_wait_;
  const std::unique_ptr<EventPoller> events_;
};

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_ENGINE_H_
