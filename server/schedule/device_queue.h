// One device's queue: makes one launch of many small submissions. While the device is busy, what is submitted waits;
// when a launch ends, the next one is made of everything that waits for rows of one kind (see BatchQueue), of any
// number of rows each: no padding, and no delay unless one is asked for. In the path: between the device scheduler and
// a device's backend. A batch is a unit of scheduling alone: results, and errors, are those of each submission by
// itself. Ownership: borrows the backend and the clock, which must outlive it. Destruction launches what waits and
// returns when every Done has. Threads: safe from any thread. A Done runs with no lock held, on a thread that submits,
// of the backend, or, where there is a delay, on a thread of its own.
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
  // Launches in the device at one time: one is copied while another one runs.
  int max_in_flight = 2;
  // Of one launch. The delay, how long a submission may wait for others although the backend is free, ends for each
  // when half of the time until its deadline is over.
  BatchLimits limits = {};
};

// Empty functions are not called. They run on any thread, several at a time, and must not block.
struct QueueObserver {
  std::function<void(int64_t submissions)> on_launch;
  // CANCELLED or DEADLINE_EXCEEDED: a submission that was not launched.
  std::function<void(absl::StatusCode why)> on_dropped;
};

class DeviceQueue {
 public:
  using Done = Backend::Done;

  DeviceQueue(Backend* device, const QueueOptions& options, Clock* clock, QueueObserver observer = {});
  ~DeviceQueue();
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;

  // A submission whose caller has cancelled, or let the deadline pass, before it is launched is Done with CANCELLED or
  // DEADLINE_EXCEEDED. When a launch of several fails, each is run again alone and has the error that it
  // then gets; but UNAVAILABLE, a lost device, is everybody's at once.
  void Submit(std::vector<Job> jobs, const RequestContext& context, Done done);

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
  Backend* const device_;
  const QueueOptions options_;
  Clock* const clock_;
  const QueueObserver observer_;

  Mutex mu_;
  CondVar idle_;
  CondVar timer_wake_;
  BatchQueue queue_ ABSL_GUARDED_BY(mu_);
  int in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  bool pumping_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  size_t unfinished_ ABSL_GUARDED_BY(mu_) = 0;  // submissions, and calls of ours on some thread
  absl::Time wake_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();

  std::thread timer_;  // only where there is a delay
};

}  // namespace normd

#endif  // NORMD_SERVER_SCHEDULE_DEVICE_QUEUE_H_
