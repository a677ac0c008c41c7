// CUDA on the CPU, a test tool and never a backend: the sources of the kernels are compiled as plain C++20 and every
// CUDA thread is a fiber. The threads of a block meet at __syncthreads, lanes of a warp at the _sync intrinsics, the
// blocks of a cluster live together. A thread runs alone until such a meeting point, so a kernel that spins on what
// another block writes hangs here. "Device memory" is heap of the exact size, full of junk, as shared memory is: ASan
// and UBSan see what a GPU would hide. Calls are finished when they return; only
// events can be held back.
// Threads: all of the runtime may be called from any host thread; kernels of different host threads run at one time.
// The controls below are for the test's thread, between launches. Ownership: memory as with CUDA.
#ifndef NORMD_TESTS_SUPPORT_CUDA_ON_CPU_CUDA_ON_CPU_H_
#define NORMD_TESTS_SUPPORT_CUDA_ON_CPU_CUDA_ON_CPU_H_

#include <cstddef>
#include <cstdint>

#include "tests/support/cuda_on_cpu/cluster.h"
#include "tests/support/cuda_on_cpu/intrinsics.h"
#include "tests/support/cuda_on_cpu/language.h"
#include "tests/support/cuda_on_cpu/runtime.h"
#include "tests/support/cuda_on_cpu/small_floats.h"

namespace cuda_on_cpu {

// The order of blocks and, at every meeting point, of threads; the junk in fresh memory. 0: the natural order. The
// order of a launch depends on the seed and the launch's shape alone, never on what ran before. By the seed modulo 3,
// a released thread waits its turn among all others (1), runs ahead of them (2), or either by a toss (0).
void SetSeed(uint64_t seed);

// What the one device says of itself. Above major 9 or equal: clusters may be launched, if there is room for any.
struct Device {
  int major = 9;
  int minor = 0;
  int sms = 4;
  int shared_optin_bytes = 227 * 1024;
  size_t memory_bytes = size_t{1} << 34;
  int clusters = 4;  // that it has room for at one time
  bool has_memory_pools = true;
};
void SetDevice(const Device& device);

// How many devices there are, 1 unless this is called. All say the same of themselves and share one memory; each has
// streams and a context of its own.
void SetDeviceCount(int count);
// Whether a thread has made the device its current one since Reset(), which creates a context there, as since CUDA 12.
bool HasContext(int device);

// Fault injection: after `after_calls` more calls of `api_name` (such as "cudaMalloc"; a launch is
// "cudaLaunchKernelEx") the next one fails with `error` and does nothing. Sticky: from then on every call fails with
// it, as after a lost device; calls that give something back still forget it, so that leaks of the caller can be told
// from the device's.
void FailCalls(const char* api_name, int after_calls, cudaError_t error, bool sticky);

// Whether events that are recorded from now on stay incomplete, as behind a kernel that still runs. False also
// completes those that were held. Nothing waits for a held event: a call that would is a mistake of the test, and dies.
void HoldEvents(bool hold);

// Seed 0, one default device, which is this thread's current one and has no context, no faults, no events held, this
// thread's last error forgotten, Launches() and BytesToHost() 0. Memory stays.
void Reset();

int64_t Launches();       // kernels run since Reset()
int64_t BytesToHost();    // copied from the device since Reset()
size_t BytesAllocated();  // device and pinned memory that was not freed
int64_t ObjectsAlive();   // streams, events and opened IPC handles that were not given back

}  // namespace cuda_on_cpu

#endif  // NORMD_TESTS_SUPPORT_CUDA_ON_CPU_CUDA_ON_CPU_H_
