#include "kernels/cpu/parallel.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "kernels/base/tsan_annotations.h"
#include "oneapi/tbb/blocked_range.h"
#include "oneapi/tbb/global_control.h"
#include "oneapi/tbb/parallel_for.h"
#include "oneapi/tbb/partitioner.h"
#include "oneapi/tbb/task_arena.h"
#include "oneapi/tbb/task_group.h"

// This file is compiled without ThreadSanitizer (see kernels/CMakeLists.txt), because TBB's hand-over between threads
// is invisible to it. In such builds NORMD_TSAN_HANDOVER is 1, and the annotations below declare the happens-before
// edges that TBB guarantees.

namespace normd::cpu {
namespace {

// Lets TBB start as many threads as the arenas ask for. TBB counts the caller as one of its threads, in an arena and in
// the process, and starts one thread fewer; our callers only leave work. The limit holds for the whole process, because
// TBB takes the least of all limits that are alive.
void AllowAllWorkers() {
  constexpr size_t kMostThreads = 1024;  // as --threads
  static const oneapi::tbb::global_control allowed(oneapi::tbb::global_control::max_allowed_parallelism,
                                                   kMostThreads + 1);
}

}  // namespace

struct WorkerPool::State {
  explicit State(int threads_in) : threads(threads_in), arena(threads_in, 0) { AllowAllWorkers(); }

  const int threads;
  oneapi::tbb::task_arena arena;
  oneapi::tbb::task_group group;
};

WorkerPool::WorkerPool(int threads) : state_(std::make_unique<State>(std::max(1, threads))) {}

WorkerPool::~WorkerPool() {
  state_->arena.execute([this] { state_->group.wait(); });
  TsanAcquire(state_.get());
}

int WorkerPool::threads() const { return state_->threads; }

void WorkerPool::Enqueue(absl::AnyInvocable<void()> task) {
  // TBB copies its functors, but the task can only move: it travels by pointer.
  auto* shared = new absl::AnyInvocable<void()>(std::move(task));
  TsanRelease(shared);
  state_->arena.enqueue(state_->group.defer([this, shared] {
    TsanAcquire(shared);
    (*shared)();
    delete shared;
    TsanRelease(state_.get());
  }));
}

void WorkerPool::ParallelFor(int64_t n, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body) {
  if (n <= 0) return;
  if (state_->threads == 1 || n <= grain) {
    // Pieces of `grain` here, too: one thread must walk the same code as many threads.
    for (int64_t i = 0; i < n; i += grain) body(i, std::min(n, i + grain));
    return;
  }
  char start = 0;
  char finish = 0;
  TsanRelease(&start);
  state_->arena.execute([&] {
    oneapi::tbb::parallel_for(
        oneapi::tbb::blocked_range<int64_t>(0, n, static_cast<size_t>(grain)),
        [&](const oneapi::tbb::blocked_range<int64_t>& range) {
          TsanAcquire(&start);
          body(range.begin(), range.end());
          TsanRelease(&finish);
        },
        oneapi::tbb::simple_partitioner());
  });
  TsanAcquire(&finish);
}

}  // namespace normd::cpu
