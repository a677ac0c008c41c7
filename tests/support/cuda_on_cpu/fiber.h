// Fibers of one host thread: a machine context with a stack of its own, switched without a system call. Used by the
// scheduler (launch.cc) alone. Threads: a fiber stays on the host thread that made it; a pool belongs to one thread.
// Ownership: the pool owns every fiber it ever made, with its stack; a fiber that has nothing to do waits in the pool
// at the place where it gave itself back, and goes on from there.
#ifndef NORMD_TESTS_SUPPORT_CUDA_ON_CPU_FIBER_H_
#define NORMD_TESTS_SUPPORT_CUDA_ON_CPU_FIBER_H_

#include <cstddef>
#include <memory>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define CUDA_ON_CPU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CUDA_ON_CPU_ASAN 1
#endif
#endif
#ifndef CUDA_ON_CPU_ASAN
#define CUDA_ON_CPU_ASAN 0
#endif

namespace cuda_on_cpu {

struct Context {
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t machine;
#endif
  // For ASan, which must know the stack that it walks.
  const void* stack_low = nullptr;
  size_t stack_bytes = 0;
};

// Saves the running context in `from` and goes on with `to`; returns when something switches to `from`.
void SwitchContext(Context& from, Context& to);

class Fiber {
 public:
  // A fiber that runs `entry` when first switched to; `entry` never returns. `number` only spreads stacks over cache
  // sets.
  Fiber(void (*entry)(), size_t number);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  Context context;

 private:
  std::byte* mapped_;  // a page without access, then the stack
};

class FiberPool {
 public:
  explicit FiberPool(void (*entry)()) : entry_(entry) {}

  Fiber* Take();
  void Give(Fiber* fiber) { idle_.push_back(fiber); }

 private:
  void (*const entry_)();
  std::vector<std::unique_ptr<Fiber>> all_;
  std::vector<Fiber*> idle_;
};

// The first thing that an `entry` does: tells ASan that the switch is over.
void ArriveFirst();

}  // namespace cuda_on_cpu

#endif  // NORMD_TESTS_SUPPORT_CUDA_ON_CPU_FIBER_H_
