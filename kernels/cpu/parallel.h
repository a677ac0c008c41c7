// The CPU backend's threads: a oneTBB arena behind two calls.
// In the path: backend.cc enqueues job lists, the walkers split large jobs. This is the only code that sees TBB, so
// that hand-overs between threads happen in one place, which also tells ThreadSanitizer about them (TBB is not
// instrumented). Thread-safe.
#ifndef NORMD_KERNELS_CPU_PARALLEL_H_
#define NORMD_KERNELS_CPU_PARALLEL_H_

#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"

namespace normd::cpu {

class WorkerPool {
 public:
  // Up to `threads` >= 1 threads work at the same time, callers of ParallelFor included.
  explicit WorkerPool(int threads);
  ~WorkerPool();  // Waits for enqueued work.

  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int threads() const;

  // Runs `task` later on a worker thread. Returns at once.
  void Enqueue(absl::AnyInvocable<void()> task);

  // Runs body(begin, end) over disjoint ranges that cover [0, n), each of at most `grain` items, and returns when all
  // have run. The ranges depend on load: the results of a body must not depend on them. REQUIRES: grain >= 1.
  void ParallelFor(int64_t n, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_PARALLEL_H_
