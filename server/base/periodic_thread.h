// A thread that runs `work` every `interval` until it is destroyed; the first run comes after one interval.
// In the path: beside it; used for periodic upkeep.
// Threads: made and destroyed by one thread at a time. The destructor waits for a running `work`, so `work` must not
// destroy the PeriodicThread.
#ifndef NORMD_SERVER_BASE_PERIODIC_THREAD_H_
#define NORMD_SERVER_BASE_PERIODIC_THREAD_H_

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"

namespace normd {

class PeriodicThread {
 public:
  PeriodicThread(absl::Duration interval, std::function<void()> work);
  ~PeriodicThread();
  PeriodicThread(const PeriodicThread&) = delete;
  PeriodicThread& operator=(const PeriodicThread&) = delete;

 private:
  void Run();

  const absl::Duration interval_;
  const std::function<void()> work_;
  Mutex mu_;
  CondVar ended_;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace normd

#endif  // NORMD_SERVER_BASE_PERIODIC_THREAD_H_
