// Threads for work that takes time in proportion to bytes, so that the threads which serve all callers (those of the
// completion queues, and the one that answers for a store) never do it: taking large messages apart, gathers,
// checksums, conversions of parameters, and system calls that map memory.
// In the path: beside it; whoever has something large to do hands it over and goes on from the pool's thread.
// Threads: every method is safe from any thread, those of the pool included.
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

  // Handing work over takes some 20 us, as does copying this many bytes.
  static constexpr int64_t kLargeBytes = 256 << 10;

  // `threads` >= 1. When `max_waiting` wait, whoever brings more does it himself: that slows him down, and the queue
  // stays bounded without a refusal.
  explicit WorkPool(int threads, size_t max_waiting = 1024);
  // Runs what waits.
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // Runs `work` once on a thread of the pool, with no lock held. Before it returns only where the calling thread is one
  // of the pool, or too many wait.
  void Run(Work work);
  // The same for work on `bytes`; what is not large runs before this returns.
  void RunIfLarge(int64_t bytes, Work work);

  // As many as one server is served well by: work on bytes is bound by memory, not by cores.
  static int DefaultThreads();

 private:
  void Serve();
  // False when it must be run by the caller.
  bool Push(Work& work);
  // Waits for the next one; empty when the pool ends.
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
