#include "server/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/base/steady_time.h"
#include "server/engine/concurrency_limiter.h"
#include "server/engine/event_poller.h"
#include "server/engine/parameter_cache.h"
#include "server/engine/step_report.h"
#include "server/engine/task.h"
#include "server/session/running_state.h"

namespace normd {

// The engine's members, as its calls use them. They outlive the calls.
struct EngineParts {
  DeviceScheduler* scheduler;
  SessionStore* sessions;
  ParameterCache* parameters;
  Resources* resources;
  ConcurrencyLimiter* limiter;
  EventPoller* events;
  absl::Duration max_event_wait;
  const EngineObserver* observer;
  const ChangeReports* changes;
};

namespace {

// Bound of the parameter cache: a few hundred layers of a large language model.
constexpr int64_t kMaxParameterBytes = int64_t{256} << 20;

bool Runs(const Task& task) { return task.status.ok() && !task.call.validate_only; }

// An error if nobody waits for the call any more: the work that is left need not be done.
absl::Status CheckCaller(const Call& call) {
  if (call.cancelled != nullptr && call.cancelled()) return CallerGoneError();
  if (call.deadline != absl::InfiniteFuture() && call.deadline <= SteadyNow()) return DeadlinePassedError();
  return absl::OkStatus();
}

CallReply TakeReply(const EngineObserver& observer, Task* task) {
  if (observer.on_not_finite != nullptr && Runs(*task) && !AllFinite(task->moments)) observer.on_not_finite();
  const bool output_available = !task->reply.state.has_value() || task->reply.state->output_available;
  if (!output_available) task->reply.outputs.clear();
  if (task->Wants(OutputKind::kMoments) && Runs(*task)) {
    task->reply.moments = std::move(task->moments);
    task->reply.extremes = std::move(task->extremes);
    task->reply.exact = std::move(task->exact);
    task->reply.moments_shape = task->plan().statistics_shape;
  }
  return std::move(task->reply);
}

// Runs all stages of a call that was prepared before and runs inline, on this thread. REQUIRES: the session of a
// session target was read.
absl::StatusOr<CallReply> RunInline(const EngineParts& parts, Task* task) {
  NORMD_RETURN_IF_ERROR(CheckCaller(task->call));
  NORMD_RETURN_IF_ERROR(PlanTask(*parts.sessions, *parts.scheduler, task));
  NORMD_RETURN_IF_ERROR(PrepareTask(*parts.scheduler, parts.parameters, parts.resources->buffers.get(), task));
  const absl::Time start = SteadyNow();
  Work work;
  work.jobs.push_back(task->ReduceJob());
  parts.scheduler->Submit(std::move(work), [task](absl::Status status) { task->status = std::move(status); });
  NORMD_RETURN_IF_ERROR(task->status);
  task->reply.timings.compute = SteadyNow() - start;
  if (task->call.validate_inputs != nullptr) NORMD_RETURN_IF_ERROR(task->call.validate_inputs());
  return TakeReply(*parts.observer, task);
}

Engine::BatchDone ForOne(Engine::Done done) {
  return [done = std::move(done)](std::vector<absl::StatusOr<CallReply>> results) mutable {
    done(std::move(results.front()));
  };
}

// Executes a batch of calls stage by stage: wait for events, read sessions, plan, reduce pass, commit, apply pass,
// finish. A single call is a batch of one, so batching cannot change its result. Each stage starts the next one from
// its callback; nothing waits.
class BatchExecution : public std::enable_shared_from_this<BatchExecution> {
 public:
  BatchExecution(const EngineParts& parts, Engine::BatchDone done) : parts_(parts), done_(std::move(done)) {}

  void Start(std::vector<Call> calls) {
    tasks_.resize(calls.size());
    for (size_t i = 0; i < calls.size(); ++i) tasks_[i].call = std::move(calls[i]);
    AwaitEvents();
  }

  // Starts one call whose session was read already.
  void Start(Task task) {
    tasks_.push_back(std::move(task));
    PlanWhereItMay();
  }

 private:
  static bool WaitsForEvents(const Task& task) {
    return task.status.ok() && task.call.events_completed != nullptr && !task.call.validate_only;
  }
  static bool ReadsSession(const Task& task) { return task.status.ok() && task.TargetId() != nullptr; }
  static bool RunsReducePass(const Task& task) { return Runs(task) && task.ReduceHasWork(); }
  static bool Commits(const Task& task) { return Runs(task) && task.commits(); }
  static bool RunsApplyPass(const Task& task) {
    return Runs(task) && task.is_two_pass() && !task.divisor.empty() && task.ApplyHasWork();
  }

  void DropAbandoned() {
    for (Task& task : tasks_) {
      if (task.status.ok()) task.status = CheckCaller(task.call);
    }
  }

  // Goes on once the events of all calls have completed or failed. This wait comes before all that takes room: until
  // the callers have written their tensors, a call holds nothing but its request and its plan, and then it reads its
  // session as it is.
  void AwaitEvents() {
    waits_since_ = SteadyNow();
    if (EventsAreOver()) return ReadSessions();
    CheckWaiting();
    parts_.events->Wait({.completed = [self = shared_from_this()] { return self->EventsAreOver(); },
                         .start = [self = shared_from_this()] { self->ReadSessions(); }});
  }

  // Ends the wait of calls that cannot be served, so that the caller of a single one gets the error at once. Calls of
  // sessions are checked after the wait alone, against the session as it is then.
  void CheckWaiting() {
    for (Task& task : tasks_) {
      if (WaitsForEvents(task) && !ReadsSession(task)) task.status = CheckTask(*parts_.scheduler, &task);
    }
  }

  // Asks for the events of each call that still waits. True if none waits any more.
  bool EventsAreOver() {
    bool over = true;
    for (Task& task : tasks_) {
      if (WaitsForEvents(task)) over = AskForEvents(&task) && over;
    }
    return over;
  }

  // True if the call waits no more: its events have completed, or it has failed.
  bool AskForEvents(Task* task) const {
    const absl::StatusOr<bool> completed = task->call.events_completed();
    if (completed.ok() && *completed) {
      task->call.events_completed = nullptr;
      return true;
    }
    const absl::Duration waited = SteadyNow() - waits_since_;
    task->status = completed.status();
    if (task->status.ok()) task->status = CheckCaller(task->call);
    if (task->status.ok() && waited > parts_.max_event_wait) {
      task->status = CudaEventPendingError(waited, parts_.max_event_wait);
    }
    return !task->status.ok();
  }

  // Reads the snapshots of session targets; the last read to end starts the next stage.
  void ReadSessions() {
    pending_.store(1 + std::count_if(tasks_.begin(), tasks_.end(), &ReadsSession), std::memory_order_relaxed);
    for (Task& task : tasks_) {
      if (!ReadsSession(task)) continue;
      parts_.sessions->Get(*task.TargetId(), task.call.max_staleness, task.call.cancelled,
                           [self = shared_from_this(), &task](absl::StatusOr<SessionPtr> session) {
                             task.status = session.status();
                             if (session.ok()) task.session = *std::move(session);
                             self->EndOne(&BatchExecution::PlanWhereItMay);
                           });
    }
    EndOne(&BatchExecution::PlanWhereItMay);
  }

  // The current thread serves many callers (a transport queue's thread or a store's callback thread), so large
  // requests, and requests of many calls, are planned on the pool.
  void PlanWhereItMay() {
    DropAbandoned();
    int64_t bytes = BytesOfCalls();
    for (const Task& task : tasks_) {
      if (task.status.ok()) bytes += BytesToPrepareFrom(task);
    }
    parts_.resources->work_pool.RunIfLarge(bytes, [self = shared_from_this()] { self->Plan(); });
  }

  int64_t BytesOfCalls() const { return static_cast<int64_t>(tasks_.size()) * WorkPool::kBytesPerItem; }

  void Plan() {
    EndWait();
    for (Task& task : tasks_) {
      if (task.status.ok()) task.status = PlanTask(*parts_.sessions, *parts_.scheduler, &task);
      if (Runs(task))
        task.status = PrepareTask(*parts_.scheduler, parts_.parameters, parts_.resources->buffers.get(), &task);
    }
    Compute();
  }

  // Ends one operation of a stage; the last one to end starts `next`.
  void EndOne(void (BatchExecution::*next)()) {
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) (this->*next)();
  }

  // Runs the reduce pass of all calls as one job list.
  void Compute() {
    DropAbandoned();
    Work work;
    for (Task& task : tasks_) {
      if (RunsReducePass(task)) Add(task.ReduceJob(), task, &work);
    }
    Submit(std::move(work), {&RunsReducePass, &BatchExecution::Commit, /*must_run=*/false});
  }

  // Commits training steps on sessions, issued in item order; the last one to be durable starts the next stage.
  void Commit() {
    const absl::Time start = SteadyNow();
    for (Task& task : tasks_) {
      if (Commits(task) && task.call.validate_inputs != nullptr) task.status = task.call.validate_inputs();
    }
    pending_.store(1 + std::count_if(tasks_.begin(), tasks_.end(), &Commits), std::memory_order_relaxed);
    for (Task& task : tasks_) {
      if (!Commits(task)) continue;
      parts_.sessions->Commit(UpdateOf(task),
                              [self = shared_from_this(), &task, start](absl::StatusOr<CommitResult> result) {
                                task.reply.timings.commit = SteadyNow() - start;
                                if (result.ok()) {
                                  ReportStep(*self->parts_.observer, *task.session, task.moments, {}, *result);
                                  if (result->applied) self->parts_.changes->Report(task.session->id);
                                }
                                Committed(std::move(result), &task);
                                self->EndOne(&BatchExecution::GoOnWhereItMay);
                              });
    }
    EndOne(&BatchExecution::GoOnWhereItMay);
  }

  // Continues on the pool as PlanWhereItMay does, because the time of the rest grows with the number of moments, which
  // become divisors or go into the reply, and with the number of calls.
  void GoOnWhereItMay() {
    int64_t bytes = BytesOfCalls();
    for (const Task& task : tasks_) {
      if (Commits(task)) bytes += static_cast<int64_t>(task.moments.size() * sizeof(Moment));
    }
    parts_.resources->work_pool.RunIfLarge(bytes, [self = shared_from_this()] { self->RunApplyPass(); });
  }

  static StateUpdate UpdateOf(const Task& task) {
    return {.id = task.session->id,
            .uid = task.session->uid,
            .moments = task.moments,
            .mean_squares = task.mean_squares,
            .details = {.extremes = task.extremes, .samples = {}},
            .step = task.call.step,
            .expected_version = task.call.expected_version,
            .moments_hash = {},
            .cancelled = task.call.cancelled};
  }

  static void Committed(absl::StatusOr<CommitResult> result, Task* task) {
    if (!result.ok()) {
      task->status = std::move(result).status();
      return;
    }
    task->apply_mean = std::move(result->mean);
    task->divisor = std::move(result->divisor);
    task->reply.state->output_available = !task->is_two_pass() || !task->divisor.empty();
    task->reply.state->result = *std::move(result);
  }

  // Training whose y needs the statistics that the commit returned.
  void RunApplyPass() {
    Work work;
    for (Task& task : tasks_) {
      if (Runs(task) && task.is_two_pass() && task.session == nullptr) TakeFirst(&task);
      if (RunsApplyPass(task)) Add(task.ApplyJob(), task, &work);
    }
    // A committed step is answered, however long the apply pass takes and even if its caller has gone.
    Submit(std::move(work), {&RunsApplyPass, &BatchExecution::Finish, /*must_run=*/true});
  }

  // Without a session, a training step is the first step of a new state.
  static void TakeFirst(Task* task) {
    RunningState state = InitialState(task->spec(), task->plan().num_channels);
    if (!task->spec().running().CountsSamples()) {
      task->divisor = PowerNormDivisor(task->spec(), 1, MeanSquaresOf(task->moments, task->mean_squares), state.phi);
      return;
    }
    const SampleDetails details = {.extremes = task->extremes, .samples = {}};
    task->status = ApplyStep(task->spec(), task->plan().num_channels, task->moments, &state, details).status();
    task->apply_mean = std::move(state.mean);
    task->divisor = std::move(state.var);
  }

  void Finish() {
    std::vector<absl::StatusOr<CallReply>> results;
    results.reserve(tasks_.size());
    for (Task& task : tasks_) {
      const bool committed = task.reply.state.has_value() && task.reply.state->result.applied;
      if (task.status.ok() && !committed && task.call.validate_inputs != nullptr)
        task.status = task.call.validate_inputs();
      if (task.status.ok()) {
        task.reply.timings.queue += queue_;
        results.emplace_back(TakeReply(*parts_.observer, &task));
      } else {
        results.emplace_back(std::move(task.status));
      }
    }
    done_(std::move(results));
  }

  struct Stage {
    bool (*mine)(const Task&);  // whether a task has a job in the stage
    void (BatchExecution::*next)();
    bool must_run;
  };

  static void Add(Job job, const Task& task, Work* work) {
    work->jobs.push_back(std::move(job));
    work->devices.push_back(task.call.device);
  }

  // Who waits for a stage. All calls of a batch belong to one request.
  RequestContext ContextOf(const Stage& stage) const {
    const Call& call = tasks_.front().call;
    if (stage.must_run) return {.caller = call.caller};
    return {.caller = call.caller,
            .deadline = call.deadline,
            .cancelled = call.cancelled == nullptr ? nullptr : &call.cancelled};
  }

  // Runs `work`, then the next stage. Large work passes the concurrency limiter first; its caller may be gone by then.
  void Submit(Work work, Stage stage) {
    if (work.jobs.empty()) return (this->*stage.next)();
    work.context = ContextOf(stage);
    executed_.clear();
    work.executed = &executed_;
    int64_t elements = 0;
    for (const Job& job : work.jobs) elements += job.plan->Work();
    const bool asks_for_device =
        std::find(work.devices.begin(), work.devices.end(), Device::kCuda) != work.devices.end();
    if (!asks_for_device && elements <= parts_.scheduler->inline_elements()) {
      return Run(std::move(work), stage, /*large=*/false);
    }
    waits_since_ = SteadyNow();
    parts_.limiter->Enter({.start =
                               [self = shared_from_this(), work = std::move(work), stage](absl::Status turn) mutable {
                                 self->EndWait();
                                 if (!turn.ok()) return self->EndStage(turn, absl::ZeroDuration(), stage);
                                 self->Run(std::move(work), stage, /*large=*/true);
                               },
                           .gone = [self = shared_from_this()] { return self->CallersGone(); },
                           .caller = tasks_.front().call.caller,
                           .must_run = stage.must_run});
  }

  // Counts the time since waits_since_, if anything has waited since then.
  void EndWait() {
    if (waits_since_ == absl::InfinitePast()) return;
    queue_ += SteadyNow() - std::exchange(waits_since_, absl::InfinitePast());
  }

  bool CallersGone() const {
    return std::all_of(tasks_.begin(), tasks_.end(), [](const Task& task) { return !CheckCaller(task.call).ok(); });
  }

  void Run(Work work, Stage stage, bool large) {
    const absl::Time start = SteadyNow();
    parts_.scheduler->Submit(std::move(work), [self = shared_from_this(), stage, large, start](absl::Status status) {
      if (large) self->parts_.limiter->Leave();
      self->EndStage(status, SteadyNow() - start, stage);
    });
  }

  // Ends a stage. If the job list failed, all of its tasks fail.
  void EndStage(const absl::Status& status, absl::Duration compute, Stage stage) {
    auto executed = executed_.begin();  // one per task with a job; none if there is only the CPU
    for (Task& task : tasks_) {
      if (!stage.mine(task)) continue;
      task.reply.timings.compute += compute;
      if (executed != executed_.end()) task.NoteExecuted(*executed++);
      if (!status.ok()) task.status = status;
    }
    (this->*stage.next)();
  }

  const EngineParts parts_;

  std::vector<Task> tasks_;         // belong to one stage at a time; in reads and commits each to its own callback
  std::vector<Executed> executed_;  // of the running stage
  absl::Time waits_since_ = absl::InfinitePast();
  absl::Duration queue_;             // all waits that have ended
  std::atomic<int64_t> pending_{0};  // operations of the stage, and one for the loop that issues them
  Engine::BatchDone done_;
};

}  // namespace

Engine::Engine(DeviceScheduler* scheduler, SessionStore* sessions, Resources* resources, const EngineOptions& options)
    : observer_(options.observer),
      scheduler_(scheduler),
      sessions_(sessions),
      resources_(resources),
      parameters_(std::make_unique<ParameterCache>(scheduler, kMaxParameterBytes)),
      limiter_(std::make_unique<ConcurrencyLimiter>(options.max_large_calls, options.max_queue_age, &clock_)),
      max_event_wait_(options.max_event_wait),
      events_(std::make_unique<EventPoller>()) {}

Engine::~Engine() = default;

void Engine::Submit(Call&& call, Done done) {
  if (call.prepared != nullptr && call.prepared->runs_inline) return SubmitPrepared(std::move(call), std::move(done));
  std::vector<Call> calls;
  calls.push_back(std::move(call));
  SubmitBatch(std::move(calls), ForOne(std::move(done)));
}

void Engine::SubmitPrepared(Call&& call, Done done) {
  if (RunsAtOnce(call)) {
    Task task;
    task.call = std::move(call);
    return done(RunInline(parts(), &task));
  }
  auto task = std::make_unique<Task>();
  task->call = std::move(call);
  const absl::Time asked_at = SteadyNow();
  const Call& asked = task->call;
  sessions_->Get(
      std::get<SessionTarget>(asked.target).id, asked.max_staleness, asked.cancelled,
      [this, task = std::move(task), done = std::move(done), asked_at](absl::StatusOr<SessionPtr> session) mutable {
        if (!session.ok()) return done(session.status());
        task->reply.timings.queue = SteadyNow() - asked_at;
        task->session = *std::move(session);
        if (task->call.prepared->IsFor(task->session.get())) return done(RunInline(parts(), task.get()));
        // The session's parameters have changed, or it was created anew: the call is planned again.
        std::make_shared<BatchExecution>(parts(), ForOne(std::move(done)))->Start(std::move(*task));
      });
}

void Engine::SubmitBatch(std::vector<Call> calls, BatchDone done) {
  std::make_shared<BatchExecution>(parts(), std::move(done))->Start(std::move(calls));
}

WaitStats Engine::wait_stats() const { return limiter_->wait_stats(); }

EngineParts Engine::parts() {
  return {scheduler_,    sessions_,       parameters_.get(), resources_, limiter_.get(),
          events_.get(), max_event_wait_, &observer_,        &changes_};
}

}  // namespace normd
