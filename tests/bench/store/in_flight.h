// How many calls of an asynchronous interface are on their way, for closed loops: one thread starts them and waits,
// any thread finishes them.
#ifndef NORMD_TESTS_BENCH_STORE_IN_FLIGHT_H_
#define NORMD_TESTS_BENCH_STORE_IN_FLIGHT_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "tests/bench/machine.h"

namespace normd::bench {

class BatchExecution {
 public:
  explicit BatchExecution(int64_t limit) : limit_(limit) {}

  // Waits until a call may start; returns how many may, all of which the caller starts.
  int64_t Take() {
    MutexLock lock(mu_);
    while (outstanding_ >= limit_) Wait();
    const int64_t free = limit_ - outstanding_;
    outstanding_ += free;
    return free;
  }

  // Gives places of Take back that were not used.
  void Return(int64_t places) {
    MutexLock lock(mu_);
    outstanding_ -= places;
  }

  // A call that started at `start` has ended.
  void Finish(absl::Time start) {
    const auto micros = static_cast<float>(absl::ToDoubleMicroseconds(SteadyNow() - start));
    MutexLock lock(mu_);
    --outstanding_;
    micros_.push_back(micros);
    if (waiting_) finished_.Signal();
  }

  // Waits for all; the microseconds that each took.
  std::vector<float> Land() {
    MutexLock lock(mu_);
    while (outstanding_ > 0) Wait();
    return std::move(micros_);
  }

 private:
  void Wait() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    waiting_ = true;
    finished_.Wait(mu_);
    waiting_ = false;
  }

  const int64_t limit_;
  Mutex mu_;
  CondVar finished_;
  int64_t outstanding_ ABSL_GUARDED_BY(mu_) = 0;
  bool waiting_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<float> micros_ ABSL_GUARDED_BY(mu_);
};

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_STORE_IN_FLIGHT_H_
