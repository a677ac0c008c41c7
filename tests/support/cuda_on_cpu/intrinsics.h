// CUDA's intrinsics, those that kernels use, with CUDA's names and signatures. Read by kernels through
// <cuda_runtime.h>. Threads: the barriers and the _sync functions are where fibers change; atomics are real ones, as
// kernels of several host threads may run at one time. rsqrtf is left out on purpose: a GPU's differs from a CPU's.
#ifndef NORMD_TESTS_SUPPORT_CUDA_ON_CPU_INTRINSICS_H_
#define NORMD_TESTS_SUPPORT_CUDA_ON_CPU_INTRINSICS_H_

#include <bit>
#include <cstdint>
#include <cstring>

#include "tests/support/cuda_on_cpu/launch.h"

// The names are CUDA's.
// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier)

inline void __syncthreads() { cuda_on_cpu::MeetBlock(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  cuda_on_cpu::MeetWarp(cuda_on_cpu::Meeting::kSyncWarp, mask, 0, 0);
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

namespace cuda_on_cpu {

template <typename T>
T Exchange(Meeting meeting, unsigned mask, T value, unsigned source_lane) {
  uint64_t given = 0;
  std::memcpy(&given, &value, sizeof(T));
  const uint64_t taken = MeetWarp(meeting, mask, given, source_lane);
  std::memcpy(&value, &taken, sizeof(T));
  return value;
}

// The lanes of PTX's shfl: `width` splits the warp into groups, and a lane past the end of its own reads itself.
inline unsigned ShuffleSource(int lane, int width) {
  const unsigned in_group = static_cast<unsigned>(width) - 1;
  return (Lane() & ~in_group) | (static_cast<unsigned>(lane) & in_group);
}
inline unsigned UpToGroupEnd(unsigned source, int width) {
  return source <= (Lane() | (static_cast<unsigned>(width) - 1)) ? source : Lane();
}

}  // namespace cuda_on_cpu

// Overloads, not a template: CUDA converts what is not one of these, and refuses what is ambiguous.
#define CUDA_ON_CPU_SHUFFLES(T)                                                                           \
  inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {                                \
    return cuda_on_cpu::Exchange(cuda_on_cpu::Meeting::kShuffle, mask, value,                             \
                                 cuda_on_cpu::ShuffleSource(lane, width));                                \
  }                                                                                                       \
  inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {                     \
    return cuda_on_cpu::Exchange(cuda_on_cpu::Meeting::kShuffleDown, mask, value,                         \
                                 cuda_on_cpu::UpToGroupEnd(cuda_on_cpu::Lane() + (delta & 31), width));   \
  }                                                                                                       \
  inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {                       \
    return cuda_on_cpu::Exchange(                                                                         \
        cuda_on_cpu::Meeting::kShuffleXor, mask, value,                                                   \
        cuda_on_cpu::UpToGroupEnd(cuda_on_cpu::Lane() ^ (static_cast<unsigned>(lane_mask) & 31), width)); \
  }
CUDA_ON_CPU_SHUFFLES(int)
CUDA_ON_CPU_SHUFFLES(unsigned)
CUDA_ON_CPU_SHUFFLES(long)
CUDA_ON_CPU_SHUFFLES(unsigned long)
CUDA_ON_CPU_SHUFFLES(long long)
CUDA_ON_CPU_SHUFFLES(unsigned long long)
CUDA_ON_CPU_SHUFFLES(float)
CUDA_ON_CPU_SHUFFLES(double)
#undef CUDA_ON_CPU_SHUFFLES

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return static_cast<unsigned>(cuda_on_cpu::MeetWarp(cuda_on_cpu::Meeting::kBallot, mask, predicate != 0, 0));
}
inline int __any_sync(unsigned mask, int predicate) {
  return static_cast<unsigned>(cuda_on_cpu::MeetWarp(cuda_on_cpu::Meeting::kAny, mask, predicate != 0, 0)) != 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  const uint64_t votes = cuda_on_cpu::MeetWarp(cuda_on_cpu::Meeting::kAll, mask, predicate != 0, 0);
  return static_cast<unsigned>(votes) == static_cast<unsigned>(votes >> 32);
}

namespace cuda_on_cpu {

template <typename T>
T MaxAtomically(T* at, T value) {
  T old = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (old < value && !__atomic_compare_exchange_n(at, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}

template <typename T>
T* Aligned(T* address) {
  if (reinterpret_cast<uintptr_t>(address) % alignof(T) != 0) DieOfAddress(address, alignof(T));
  return address;
}

}  // namespace cuda_on_cpu

#define CUDA_ON_CPU_ATOMICS(T)                                                                     \
  inline T atomicAdd(T* at, T value) { return __atomic_fetch_add(at, value, __ATOMIC_RELAXED); }   \
  inline T atomicOr(T* at, T value) { return __atomic_fetch_or(at, value, __ATOMIC_RELAXED); }     \
  inline T atomicExch(T* at, T value) { return __atomic_exchange_n(at, value, __ATOMIC_RELAXED); } \
  inline T atomicMax(T* at, T value) { return cuda_on_cpu::MaxAtomically(at, value); }
CUDA_ON_CPU_ATOMICS(int)
CUDA_ON_CPU_ATOMICS(unsigned)
CUDA_ON_CPU_ATOMICS(unsigned long long)
#undef CUDA_ON_CPU_ATOMICS

// Loads and stores with a cache hint, at addresses that suit the type, which every build checks.
template <typename T>
T __ldg(const T* from) {
  return *cuda_on_cpu::Aligned(from);
}
template <typename T>
T __ldcs(const T* from) {
  return *cuda_on_cpu::Aligned(from);
}
template <typename T>
T __ldcg(const T* from) {
  return *cuda_on_cpu::Aligned(from);
}
template <typename T>
void __stcs(T* to, T value) {
  *cuda_on_cpu::Aligned(to) = value;
}

inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline long long __double_as_longlong(double value) { return std::bit_cast<long long>(value); }
inline double __longlong_as_double(long long bits) { return std::bit_cast<double>(bits); }

inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(uint64_t{a} * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>(static_cast<Wide>(a) * b >> 64);
}
inline int __clz(int bits) { return std::countl_zero(static_cast<unsigned>(bits)); }
inline int __clzll(long long bits) { return std::countl_zero(static_cast<unsigned long long>(bits)); }
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __ffs(int bits) { return bits == 0 ? 0 : std::countr_zero(static_cast<unsigned>(bits)) + 1; }

// CUDA's global min and max: of mixed signs the unsigned type wins, of NaN and a number the number does.
#define CUDA_ON_CPU_MIN_MAX(R, A, B)                                                                                  \
  constexpr R min(A a, B b) { return static_cast<R>(a) < static_cast<R>(b) ? static_cast<R>(a) : static_cast<R>(b); } \
  constexpr R max(A a, B b) { return static_cast<R>(a) > static_cast<R>(b) ? static_cast<R>(a) : static_cast<R>(b); }
CUDA_ON_CPU_MIN_MAX(int, int, int)
CUDA_ON_CPU_MIN_MAX(unsigned, unsigned, unsigned)
CUDA_ON_CPU_MIN_MAX(unsigned, int, unsigned)
CUDA_ON_CPU_MIN_MAX(unsigned, unsigned, int)
CUDA_ON_CPU_MIN_MAX(long, long, long)
CUDA_ON_CPU_MIN_MAX(unsigned long, unsigned long, unsigned long)
CUDA_ON_CPU_MIN_MAX(unsigned long, long, unsigned long)
CUDA_ON_CPU_MIN_MAX(unsigned long, unsigned long, long)
CUDA_ON_CPU_MIN_MAX(long long, long long, long long)
CUDA_ON_CPU_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
CUDA_ON_CPU_MIN_MAX(unsigned long long, long long, unsigned long long)
CUDA_ON_CPU_MIN_MAX(unsigned long long, unsigned long long, long long)
#undef CUDA_ON_CPU_MIN_MAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(float a, double b) { return fmin(a, b); }
inline double max(float a, double b) { return fmax(a, b); }
inline double min(double a, float b) { return fmin(a, b); }
inline double max(double a, float b) { return fmax(a, b); }

// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)

#endif  // NORMD_TESTS_SUPPORT_CUDA_ON_CPU_INTRINSICS_H_
