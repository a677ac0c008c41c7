#include "tests/support/cuda_on_cpu/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if CUDA_ON_CPU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace cuda_on_cpu {
namespace {

constexpr size_t kGuardBytes = 4096;
// Frames with ASan's red zones are several times as large.
constexpr size_t kStackBytes = CUDA_ON_CPU_ASAN ? 256 * 1024 : 64 * 1024;

// The context that the running one was switched to from.
thread_local Context* left = nullptr;

// The second half of a switch, on the new stack.
void Arrive([[maybe_unused]] void* fake_stack) {
#if CUDA_ON_CPU_ASAN
  __sanitizer_finish_switch_fiber(fake_stack, &left->stack_low, &left->stack_bytes);
#endif
}

}  // namespace

#if defined(__x86_64__)
// The callee-saved registers of the System V ABI go to the old stack and come from the new one; `ret` returns into the
// new context. Rounding modes are not saved: no kernel changes them.
extern "C" void CudaOnCpuSwitch(void** save_stack_pointer, void* load_stack_pointer);
asm(R"(
.text
.p2align 4
.globl CudaOnCpuSwitch
.hidden CudaOnCpuSwitch
.type CudaOnCpuSwitch, @function
CudaOnCpuSwitch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size CudaOnCpuSwitch, .-CudaOnCpuSwitch
)");
#endif

void SwitchContext(Context& from, Context& to) {
  void* fake_stack = nullptr;
#if CUDA_ON_CPU_ASAN
  __sanitizer_start_switch_fiber(&fake_stack, to.stack_low, to.stack_bytes);
#endif
  left = &from;
#if defined(__x86_64__)
  CudaOnCpuSwitch(&from.stack_pointer, to.stack_pointer);
#else
  swapcontext(&from.machine, &to.machine);
#endif
  Arrive(fake_stack);
}

void ArriveFirst() { Arrive(nullptr); }

Fiber::Fiber(void (*entry)(), size_t number) {
  void* mapped = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (mapped == MAP_FAILED || mprotect(mapped, kGuardBytes, PROT_NONE) != 0) {
    std::perror("cuda_on_cpu: no stack for a thread");
    std::abort();
  }
  mapped_ = static_cast<std::byte*>(mapped);
  context.stack_low = mapped_ + kGuardBytes;
  context.stack_bytes = kStackBytes;
#if defined(__x86_64__)
  // Stacks lie a page and 64 KiB apart: without a shift of their own, all tops share a few sets of the first cache.
  void** top = reinterpret_cast<void**>(mapped_ + kGuardBytes + kStackBytes - number % 32 * 128);
  *--top = nullptr;  // where `entry` would return to; keeps the stack aligned as after a call
  *--top = reinterpret_cast<void*>(entry);
  for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
  context.stack_pointer = top;
#else
  static_cast<void>(number);
  getcontext(&context.machine);
  context.machine.uc_stack.ss_sp = mapped_ + kGuardBytes;
  context.machine.uc_stack.ss_size = kStackBytes;
  context.machine.uc_link = nullptr;
  makecontext(&context.machine, entry, 0);
#endif
}

Fiber::~Fiber() {
#if CUDA_ON_CPU_ASAN
  // The frames of a parked fiber never end: their red zones would lie in whatever is mapped here next.
  __asan_unpoison_memory_region(mapped_ + kGuardBytes, kStackBytes);
#endif
  munmap(mapped_, kGuardBytes + kStackBytes);
}

Fiber* FiberPool::Take() {
  if (idle_.empty()) return all_.emplace_back(std::make_unique<Fiber>(entry_, all_.size())).get();
  Fiber* fiber = idle_.back();
  idle_.pop_back();
  return fiber;
}

}  // namespace cuda_on_cpu
