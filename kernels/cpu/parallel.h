// The CPU backend's threads: a oneTBB arena behind two calls. The only code that sees TBB, so that the hand-over
// between threads is in one place (and told to ThreadSanitizer there: TBB itself is not instrumented). Thread-safe.
#ifndef NORMD_KERNELS_CPU_PARALLEL_H_
#define NORMD_KERNELS_CPU_PARALLEL_H_

#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"

namespace normd::cpu {

class WorkerPool {
 public:
  // `threads` >= 1 at work at once, callers of ParallelFor included.
  explicit WorkerPool(int threads);
  ~WorkerPool();  // waits for enqueued work

  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int threads() const;

  // Runs `task` later on a worker. Returns at once.
  void Enqueue(absl::AnyInvocable<void()> task);

  // Runs body(begin, end) over disjoint ranges that cover [0, n), each at most `grain` long where it splits; returns
  // when all have run. The ranges depend on load: a body must not let its results depend on them.
  void ParallelFor(int64_t n, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_PARALLEL_H_
