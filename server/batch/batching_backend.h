// A Backend that makes one launch of many small submissions. While the wrapped backend is busy, what is submitted
// waits; when a launch ends, the next one is made of everything that waits for rows of one kind (see BatchQueue), of
// any number of rows each: no padding, and no delay unless one is asked for. In the path: between PlacedBackend and a
// device. A batch is a unit of scheduling alone: results, and errors, are those of each submission by itself.
// Ownership: owns the wrapped backend. Destruction launches what waits and returns when every Done has.
// Threads: safe from any thread. A Done runs with no lock held, on a thread that submits, of the wrapped backend, or,
// where there is a delay, on a thread of its own.
#ifndef NORMD_SERVER_BATCH_BATCHING_BACKEND_H_
#define NORMD_SERVER_BATCH_BATCHING_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/batch/batch_queue.h"

namespace normd {

struct BatchingOptions {
  // Launches in the wrapped backend at one time: one is copied while another one runs.
  int max_in_flight = 2;
  // Of one launch. The delay, how long a submission may wait for others although the backend is free, ends for each
  // when half of the time until its deadline is over.
  BatchLimits limits = {};
};

// Empty functions are not called. They run on any thread, several at a time, and must not block.
struct BatchObserver {
  std::function<void(int64_t submissions)> on_launch;
  // CANCELLED or DEADLINE_EXCEEDED: a submission that was not launched.
  std::function<void(absl::StatusCode why)> on_dropped;
};

class BatchingBackend final : public Backend {
 public:
  // `clock` must outlive the backend.
  BatchingBackend(std::unique_ptr<Backend> inner, const BatchingOptions& options, Clock* clock,
                  BatchObserver observer = {});
  ~BatchingBackend() override;

  std::string_view name() const override { return inner_->name(); }
  std::string KernelName(const NormPlan& plan) const override { return inner_->KernelName(plan); }
  bool Supports(const NormPlan& plan) const override { return inner_->Supports(plan); }
  bool TakesSegments(const NormPlan& plan) const override { return inner_->TakesSegments(plan); }
  absl::StatusOr<std::shared_ptr<const Layer>> Prepare(const ParameterViews& parameters,
                                                       double weight_offset) const override {
    return inner_->Prepare(parameters, weight_offset);
  }

  // A submission whose callers have all cancelled, or let their deadlines pass, before it is launched is Done with
  // CANCELLED or DEADLINE_EXCEEDED. When a launch of several fails, each is run again alone and has the error that it
  // then gets; but UNAVAILABLE, a lost device, is everybody's at once.
  void Submit(std::vector<Job> jobs, Done done) override;

 private:
  struct Dropped {
    std::unique_ptr<Submission> submission;
    absl::Status why;
  };

  // Launches what may be launched. One thread does at a time, and sees what others add meanwhile.
  void Pump();
  // The next launch, with room taken for it; empty where there is none, and then nobody is pumping any more.
  Submissions NextLaunch();
  void Launch(Submissions submissions);
  void Drop(std::vector<Dropped> dropped);
  void Finish(Submissions submissions, const absl::Status& status);
  // So many of `unfinished_` have been done with: the last use of `this` by whoever did.
  void End(size_t count);
  void RunTimer();

  // Constant after construction.
  const BatchingOptions options_;
  Clock* const clock_;
  const BatchObserver observer_;

  Mutex mu_;
  CondVar idle_;
  CondVar timer_wake_;
  BatchQueue queue_ ABSL_GUARDED_BY(mu_);
  int in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  bool pumping_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  size_t unfinished_ ABSL_GUARDED_BY(mu_) = 0;  // submissions, and calls of ours on some thread
  absl::Time wake_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();

  const std::unique_ptr<Backend> inner_;
  std::thread timer_;  // only where there is a delay
};

}  // namespace normd

#endif  // NORMD_SERVER_BATCH_BATCHING_BACKEND_H_
