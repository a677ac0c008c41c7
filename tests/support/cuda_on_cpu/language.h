// The words of CUDA C++ that kernels use: qualifiers (which mean nothing here), vector types with CUDA's alignment, so
// that UBSan sees a misaligned access, index variables and dynamic shared memory. Read by kernels through
// <cuda_runtime.h>. Threads: the index variables are those of the fiber that reads them; they mean nothing outside a
// kernel. `__shared__` and `__constant__` are left out on purpose: kernels take dynamic shared memory.
#ifndef NORMD_TESTS_SUPPORT_CUDA_ON_CPU_LANGUAGE_H_
#define NORMD_TESTS_SUPPORT_CUDA_ON_CPU_LANGUAGE_H_

#include <math.h>

#include <cstdint>

// The names are CUDA's.
// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier)

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  constexpr dim3(unsigned x_size = 1, unsigned y_size = 1, unsigned z_size = 1) : x(x_size), y(y_size), z(z_size) {}
  unsigned x, y, z;
};
// clang's UndefinedBehaviorSanitizer looks at the reference of a copy constructor, never at the copy of a trivial
// struct: under it alone the vectors have copies of their own. They are trivially copyable everywhere else.
#if defined(__clang__)
#if __has_feature(undefined_behavior_sanitizer)
#define CUDA_ON_CPU_SEEN_COPIES 1
#endif
#endif
#if defined(CUDA_ON_CPU_SEEN_COPIES)
#define CUDA_ON_CPU_COPIES2(name, T)                               \
  name() = default;                                                \
  constexpr name(T x_value, T y_value) : x(x_value), y(y_value) {} \
  constexpr name(const name& other) : x(other.x), y(other.y) {}    \
  constexpr name& operator=(const name& other) {                   \
    x = other.x;                                                   \
    y = other.y;                                                   \
    return *this;                                                  \
  }
#define CUDA_ON_CPU_COPIES4(name, T)                                                                             \
  name() = default;                                                                                              \
  constexpr name(T x_value, T y_value, T z_value, T w_value) : x(x_value), y(y_value), z(z_value), w(w_value) {} \
  constexpr name(const name& other) : x(other.x), y(other.y), z(other.z), w(other.w) {}                          \
  constexpr name& operator=(const name& other) {                                                                 \
    x = other.x;                                                                                                 \
    y = other.y;                                                                                                 \
    z = other.z;                                                                                                 \
    w = other.w;                                                                                                 \
    return *this;                                                                                                \
  }
#else
#define CUDA_ON_CPU_COPIES2(name, T)
#define CUDA_ON_CPU_COPIES4(name, T)
#endif

#define CUDA_ON_CPU_VECTOR2(name, T)   \
  struct alignas(2 * sizeof(T)) name { \
    T x, y;                            \
    CUDA_ON_CPU_COPIES2(name, T)       \
  };
#define CUDA_ON_CPU_VECTOR4(name, T)   \
  struct alignas(4 * sizeof(T)) name { \
    T x, y, z, w;                      \
    CUDA_ON_CPU_COPIES4(name, T)       \
  };
CUDA_ON_CPU_VECTOR2(uint2, unsigned)
CUDA_ON_CPU_VECTOR2(float2, float)
CUDA_ON_CPU_VECTOR2(double2, double)
CUDA_ON_CPU_VECTOR2(ulonglong2, unsigned long long)
CUDA_ON_CPU_VECTOR4(uint4, unsigned)
CUDA_ON_CPU_VECTOR4(int4, int)
CUDA_ON_CPU_VECTOR4(float4, float)
#undef CUDA_ON_CPU_VECTOR2
#undef CUDA_ON_CPU_VECTOR4
#undef CUDA_ON_CPU_COPIES2
#undef CUDA_ON_CPU_COPIES4

constexpr uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
constexpr uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
constexpr int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
constexpr float2 make_float2(float x, float y) { return {x, y}; }
constexpr float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
constexpr double2 make_double2(double x, double y) { return {x, y}; }
constexpr ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }

// Of the fiber that runs on this host thread. Variables and no macros: cudaLaunchConfig_t has members of these names.
extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;
inline constexpr int warpSize = 32;

namespace cuda_on_cpu {

// The running block's dynamic shared memory: exactly the bytes that the launch asked for, 128-byte aligned.
extern constinit thread_local unsigned char* dynamic_shared;

}  // namespace cuda_on_cpu

// Declares `name`, the block's dynamic shared memory. With nvcc: extern __shared__ __align__(16) unsigned char name[].
#define NORMD_DYNAMIC_SHARED(name) unsigned char* name = ::cuda_on_cpu::dynamic_shared

// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)

#endif  // NORMD_TESTS_SUPPORT_CUDA_ON_CPU_LANGUAGE_H_
