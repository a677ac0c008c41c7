#include "server/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/time/clock.h"
#include "server/engine/layer_cache.h"
#include "server/engine/task.h"
#include "server/session/running_state.h"

namespace normd {

namespace {

// Converted parameters kept for sessions: a few hundred layers of a large language model.
constexpr int64_t kMaxLayerBytes = int64_t{256} << 20;

// Calls that travel together: their sessions read, planned, computed, committed, finished. A single call is a flight of
// one, so that its bytes are those of a batch. Every stage hands the flight to the next one's callback; nothing waits.
class Flight : public std::enable_shared_from_this<Flight> {
 public:
  Flight(Backend* backend, SessionStore* sessions, LayerCache* layers, Engine::BatchDone done)
      : backend_(backend), sessions_(sessions), layers_(layers), done_(std::move(done)) {}

  void Start(std::vector<Call> calls) {
    tasks_.resize(calls.size());
    for (size_t i = 0; i < calls.size(); ++i) tasks_[i].call = std::move(calls[i]);
    ReadSessions();
  }

 private:
  static bool Runs(const Task& task) { return task.status.ok() && !task.call.validate_only; }
  static bool RunsFirstHalf(const Task& task) { return Runs(task) && task.FirstHasWork(); }
  static bool Commits(const Task& task) { return Runs(task) && task.commits; }
  static bool RunsSecondHalf(const Task& task) {
    return Runs(task) && task.two_halves && !task.divisor.empty() && task.SecondHasWork();
  }

  // The snapshots that calls to sessions read; the last one to come goes on.
  void ReadSessions() {
    pending_.store(1 + std::count_if(tasks_.begin(), tasks_.end(), [](const Task& task) { return task.TargetId(); }),
                   std::memory_order_relaxed);
    for (Task& task : tasks_) {
      const std::string* const id = task.TargetId();
      if (id == nullptr) continue;
      sessions_->Get(*id, task.call.max_staleness,
                     [self = shared_from_this(), &task](absl::StatusOr<SessionPtr> session) {
                       task.status = session.status();
                       if (session.ok()) task.session = *std::move(session);
                       self->EndOne(&Flight::Plan);
                     });
    }
    EndOne(&Flight::Plan);
  }

  void Plan() {
    for (Task& task : tasks_) {
      if (task.status.ok()) task.status = PlanTask(*sessions_, *backend_, &task);
      if (Runs(task)) task.status = PrepareTask(*backend_, layers_, &task);
    }
    Compute();
  }

  // Whoever ends the last operation of a stage goes on with the next.
  void EndOne(void (Flight::*next)()) {
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) (this->*next)();
  }

  // All calls of the flight as one job list.
  void Compute() {
    std::vector<Job> jobs;
    for (Task& task : tasks_) {
      if (RunsFirstHalf(task)) jobs.push_back(task.FirstJob());
    }
    Submit(std::move(jobs), &RunsFirstHalf, &Flight::Commit);
  }

  // Training steps on sessions, issued in item order; the last one to be durable goes on.
  void Commit() {
    const absl::Time start = absl::Now();
    pending_.store(1 + std::count_if(tasks_.begin(), tasks_.end(), &Commits), std::memory_order_relaxed);
    for (Task& task : tasks_) {
      if (!Commits(task)) continue;
      sessions_->Commit(UpdateOf(task), [self = shared_from_this(), &task, start](absl::StatusOr<CommitResult> result) {
        task.reply.timings.commit = absl::Now() - start;
        Committed(std::move(result), &task);
        self->EndOne(&Flight::ApplySecondHalves);
      });
    }
    EndOne(&Flight::ApplySecondHalves);
  }

  static StateUpdate UpdateOf(const Task& task) {
    return {.id = task.session->id,
            .epoch = task.session->epoch,
            .moments = task.moments,
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
    task->divisor = std::move(result->divisor);
    task->reply.state->output_available = !task->two_halves || !task->divisor.empty();
    task->reply.state->result = *std::move(result);
  }

  // PowerNorm training: y needs what the commit said.
  void ApplySecondHalves() {
    std::vector<Job> jobs;
    for (Task& task : tasks_) {
      if (Runs(task) && task.two_halves && task.session == nullptr) task.divisor = FirstDivisor(task);
      if (RunsSecondHalf(task)) jobs.push_back(task.SecondJob());
    }
    Submit(std::move(jobs), &RunsSecondHalf, &Flight::Finish);
  }

  // Without a session a training step is the first one of a new state.
  static std::vector<double> FirstDivisor(const Task& task) {
    return PowerNormDivisor(task.spec, 1, task.moments, InitialState(task.spec, task.plan.num_channels).phi);
  }

  void Finish() {
    std::vector<absl::StatusOr<CallReply>> results;
    results.reserve(tasks_.size());
    for (Task& task : tasks_) {
      if (task.status.ok()) {
        results.emplace_back(TakeReply(&task));
      } else {
        results.emplace_back(std::move(task.status));
      }
    }
    done_(std::move(results));
  }

  static CallReply TakeReply(Task* task) {
    const bool output_available = !task->reply.state.has_value() || task->reply.state->output_available;
    if (!output_available) task->reply.outputs.clear();
    if (task->Wants(OutputKind::kMoments) && Runs(*task)) {
      task->reply.moments = std::move(task->moments);
      task->reply.moments_shape = task->plan.statistics_shape;
    }
    return std::move(task->reply);
  }

  // Runs `jobs`, those of the tasks that `mine` names, then `next`. A failed list fails its tasks.
  void Submit(std::vector<Job> jobs, bool (*mine)(const Task&), void (Flight::*next)()) {
    if (jobs.empty()) return (this->*next)();
    const absl::Time start = absl::Now();
    backend_->Submit(std::move(jobs), [self = shared_from_this(), mine, next, start](absl::Status status) {
      const absl::Duration compute = absl::Now() - start;
      for (Task& task : self->tasks_) {
        if (!mine(task)) continue;
        task.reply.timings.compute += compute;
        if (!status.ok()) task.status = status;
      }
      ((*self).*next)();
    });
  }

  // Constant after construction.
  Backend* const backend_;
  SessionStore* const sessions_;
  LayerCache* const layers_;

  std::vector<Task> tasks_;          // one stage's at a time, but for reads and commits: one callback's each
  std::atomic<int64_t> pending_{0};  // of the stage, and one for the loop that issues them
  Engine::BatchDone done_;
};

}  // namespace

Engine::Engine(Backend* backend, SessionStore* sessions)
    : backend_(backend), sessions_(sessions), layers_(std::make_unique<LayerCache>(backend, kMaxLayerBytes)) {}

Engine::~Engine() = default;

void Engine::Submit(Call call, Done done) {
  std::vector<Call> calls;
  calls.push_back(std::move(call));
  SubmitBatch(std::move(calls), [done = std::move(done)](std::vector<absl::StatusOr<CallReply>> results) mutable {
    done(std::move(results.front()));
  });
}

void Engine::SubmitBatch(std::vector<Call> calls, BatchDone done) {
  std::make_shared<Flight>(backend_, sessions_, layers_.get(), std::move(done))->Start(std::move(calls));
}

}  // namespace normd
