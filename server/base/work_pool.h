// Threads for work that takes time in proportion to bytes or to items: taking large messages and batches apart,
// gathers, checksums, conversions of parameters, and system calls that map memory. The threads that serve all callers
// (those of the transport's queues, and a store's callback thread) hand such work over instead of doing it. In the
// path: beside it; a call that has handed work over goes on from the pool's thread. Threads: every method is safe from
// any thread, including the pool's own.
#ifndef NORMD_SERVER_BASE_WORK_POOL_H_
#define NORMD_SERVER_BASE_WORK_POOL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "server/base/mutex.h"

namespace normd {

class WorkPool {
 public:
  using Work = absl::AnyInvocable<void()>;

  // Handing work over takes some 20 us, which is also the time to copy this many bytes.
  static constexpr int64_t kLargeBytes = 256 << 10;
  // What one of many items (a call of a batch, a session of a list) counts as, beside its own bytes: it takes at least
  // a microsecond and up to six, and its objects and its reply take about this much memory, however small it is.
  static constexpr int64_t kBytesPerItem = 1 << 10;

  // REQUIRES: `threads` >= 1. When `max_waiting` pieces of work wait, Run does further work on the calling thread,
  // which slows the caller down and bounds the queue without refusing anything.
  explicit WorkPool(int threads, size_t max_waiting = 1024);
  // Runs all waiting work first.
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // Runs `work` once on a thread of the pool, with no lock held. Runs it before returning if the calling thread belongs
  // to the pool or the queue is full.
  void Run(Work work);
  // Runs `work` as Run does if it concerns at least kLargeBytes, and otherwise before returning.
  void RunIfLarge(int64_t bytes, Work work);

  // A number of threads that suits one server: half of the cores, from 2 to 8, because work on bytes is limited by
  // memory bandwidth and not by cores.
  static int DefaultThreads();

 private:
  void Serve();
  // Queues `work`, or returns false when the queue is full and the caller must run it.
  bool Push(Work& work);
  // Waits for the next piece of work; returns a null Work when the pool ends.
  Work Take();

  const size_t max_waiting_;
  Mutex mu_;
  CondVar changed_;
  std::deque<Work> waiting_ ABSL_GUARDED_BY(mu_);
  bool ends_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;  // constant after construction
};

}  // namespace normd

#endif  // NORMD_SERVER_BASE_WORK_POOL_H_
