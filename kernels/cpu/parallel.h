// The CPU backend's threads: tasks that run later, and loops whose ranges idle threads share.
// In the path: backend.cc enqueues job lists, the walkers split large jobs.
// Why not a library's pool: a task takes 300 us, and waking a thread takes 10 to 50. So a task says before it begins
// how many threads its loops can occupy, these threads stay awake for a moment between two loops, and a thread that is
// woken to help starts on another core than that of the thread that it helps (WakeHelpers). Thread-safe.
#ifndef NORMD_KERNELS_CPU_PARALLEL_H_
#define NORMD_KERNELS_CPU_PARALLEL_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"

namespace normd::cpu {

class WorkerPool {
 public:
  // Tasks are run by `threads` >= 1 threads, which start with the first task or loop that needs them.
  explicit WorkerPool(int threads);
  ~WorkerPool();  // Waits for enqueued work.

  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int threads() const { return threads_; }

  // Runs `task` later on a thread of the pool; tasks start in the order they came. Returns at once. `helpers` is the
  // number of further threads that the loops of the task can occupy: they are woken when the task starts.
  void Enqueue(absl::AnyInvocable<void()> task, int64_t helpers);

  // Runs body(begin, end) over disjoint ranges that cover [0, n), each of `grain` items but for the last, and returns
  // when all have run. This thread takes ranges, and so do threads of the pool that have no task. Which thread runs a
  // range depends on load: the results of a body must not depend on it. A body that runs out of memory on any thread,
  // which is the one exception that a body may throw, makes this function skip the ranges that have not begun and throw
  // std::bad_alloc when no body runs any more. REQUIRES: grain >= 1.
  void ParallelFor(int64_t n, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body);

 private:
  class Loop;
  struct Worker;
  struct Task {
    absl::AnyInvocable<void()> run;
    int64_t helpers;
  };
  using Lock = std::unique_lock<std::mutex>;

  // A `lock` of mu_ is held at the start and at the end of a function that takes one.
  void StartThreads(Lock& lock);
  void Work(Worker* worker);  // a thread of the pool
  void RunTask(Lock& lock);   // REQUIRES: tasks_ is not empty
  void Sleep(Worker* worker, Lock& lock);
  // Wakes a thread, if one sleeps.
  void WakeOne(Lock& lock);
  // Wakes up to two of the threads that should help. Each of them does the same when it runs.
  void WakeHelpers(Lock& lock);
  // Takes ranges of `loop` until none is left.
  void Help(Loop* loop, Lock& lock);
  // Removes `loop` and returns when no other thread is inside. Meanwhile this thread helps with inner loops that the
  // threads inside have begun.
  void Finish(Loop* loop);
  // A loop that has ranges left and was begun inside more than `depth` others; null if there is none.
  Loop* FindLoop(int depth, Lock& lock) const;

  const int threads_;
  std::mutex mu_;  // guards everything below but news_
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Worker*> sleeping_;  // not yet woken; the last one fell asleep last and is woken first
  std::deque<Task> tasks_;
  std::vector<Loop*> loops_;  // the loops that may have ranges left
  int64_t running_ = 0;       // tasks
  int64_t wanted_ = 0;        // threads that should be woken to help
  int64_t finishing_ = 0;     // threads that sleep in Finish
  bool closing_ = false;
  std::condition_variable finish_;  // a thread left a loop, or began an inner one
  std::atomic<uint64_t> news_ = 0;  // counts tasks and loops
};

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_PARALLEL_H_
