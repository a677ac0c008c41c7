// The queue of one device, which combines small submissions into one launch. While the device is busy, submissions
// wait; when a launch ends, the next one takes all waiting rows of one kind (see BatchQueue), any number of rows each:
// without padding, and without a delay unless one is configured. Batching is scheduling alone: each submission gets the
// results and errors that it would get by itself.
// In the path: between the device scheduler and a device's backend.
// Ownership: borrows the backend and the clock, which must outlive the queue. Destruction launches all waiting work and
// returns when every Done has returned.
// Threads: safe from any thread. Done runs with no lock held: on a submitting thread, on a thread of the backend or, if
// there is a delay, on the queue's own thread.
#ifndef NORMD_SERVER_SCHEDULE_DEVICE_QUEUE_H_
#define NORMD_SERVER_SCHEDULE_DEVICE_QUEUE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/schedule/batch_queue.h"
#include "server/schedule/work.h"

namespace normd {

struct QueueOptions {
  // Launches in the device at one time. With two, one is copied while the other one runs.
  int max_in_flight = 2;
  // Limits of one launch. The delay is how long a submission may wait for others although the device is free; for each
  // submission it ends at the latest when half of the time until the deadline is over.
  BatchLimits limits = {};
};

// Null functions are not called. They run on any thread, several at a time, and must not block.
struct QueueObserver {
  std::function<void(int64_t submissions)> on_launch;
  // A submission was not launched, for CANCELLED or DEADLINE_EXCEEDED.
  std::function<void(absl::StatusCode why)> on_dropped;
};

class DeviceQueue {
 public:
  using Done = Backend::Done;

  DeviceQueue(Backend* device, const QueueOptions& options, Clock* clock, QueueObserver observer = {});
  ~DeviceQueue();
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;

  // Runs all jobs, then `done` once. A submission whose caller cancels, or whose deadline passes, before the launch
  // gets CANCELLED or DEADLINE_EXCEEDED. When a launch of several submissions fails, each runs again alone and gets the
  // error of that run; but UNAVAILABLE, a lost device, goes to all of them at once.
  void Submit(std::vector<Job> jobs, const RequestContext& context, Done done);

  // The submissions that wait for their launch now.
  WaitStats wait_stats() const;

 private:
  struct Dropped {
    std::unique_ptr<Submission> submission;
    absl::Status why;
  };

  // Launches all work that is ready. One thread at a time pumps, and sees the work that others add meanwhile.
  void Pump();
  // The next launch, counted as in flight; empty if there is none, and then no thread pumps any more.
  Submissions NextLaunch();
  void Launch(Submissions submissions);
  void Drop(std::vector<Dropped> dropped);
  void Finish(Submissions submissions, const absl::Status& status);
  // Counts `count` of `unfinished_` as done. The caller must not use `this` afterwards.
  void End(size_t count);
  void RunTimer();

  // Constant after construction.
  Backend* const device_;
  const QueueOptions options_;
  Clock* const clock_;
  const QueueObserver observer_;

  mutable Mutex mu_;
  CondVar idle_;
  CondVar timer_wake_;
  BatchQueue queue_ ABSL_GUARDED_BY(mu_);
  int in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  bool pumping_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  size_t unfinished_ ABSL_GUARDED_BY(mu_) = 0;  // submissions, and running calls of this class
  absl::Time wake_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();

  std::thread timer_;  // runs only if there is a delay
};

}  // namespace normd

#endif  // NORMD_SERVER_SCHEDULE_DEVICE_QUEUE_H_
