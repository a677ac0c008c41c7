// The part of the CUDA runtime that kernels and the code that launches them use: one way to launch, one way to take
// shared memory.
// In the path: every .cu file starts its kernels with Launch. Device code includes this header, standard headers, and
// headers of kernels/ that include nothing else.
// The same sources compile as plain C++ against a stand-in for the runtime (tests/support/cuda_on_cpu). Therefore
// nothing here uses the <<<>>> syntax, static shared memory, or an intrinsic that the stand-in lacks.
// Threads: safe from any thread.
#ifndef NORMD_KERNELS_CUDA_DEVICE_H_
#define NORMD_KERNELS_CUDA_DEVICE_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <limits>
#include <utility>

// Declares `name`, the block's dynamic shared memory, aligned to 16 bytes.
#ifndef NORMD_DYNAMIC_SHARED
#define NORMD_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif

namespace normd::cuda {

inline constexpr int kWarp = 32;  // threads

// The shared memory that a block may have unless its kernel asks for more.
inline constexpr int64_t kPlainSharedBytes = 48 << 10;

// The grid of a launch.
struct LaunchShape {
  int64_t blocks = 0;
  int threads = 0;
  int64_t shared_bytes = 0;
  int64_t shared_limit = 0;  // the device's limit for a block; needed beyond kPlainSharedBytes
  int cluster_blocks = 1;    // blocks of a cluster; over 1: see HasClusters
};

// Waits, before a kernel touches memory, until the previous launch in the stream has ended and its writes are visible.
// The next launch may start from then on, so that it is under way when this one ends.
#if defined(__CUDACC__)
__device__ __forceinline__ void WaitForLaunchBefore() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// The compute capability, as 90, of that code of this library's kernels which runs on the device in use; 0 if none
// does. Code for 8.0 uses no feature of 9.0, on whatever device it runs.
int CodeVersion();

// True if kernels can overlap on the device of this thread: their code waits for the previous launch from 9.0 on. The
// answer is that for the thread's first launch, because a thread uses one device.
inline bool LaunchesOverlap() {
  static thread_local const bool overlap = CodeVersion() >= 90;
  return overlap;
}
#else
inline void WaitForLaunchBefore() {}
inline int CodeVersion() { return 90; }
#endif

// A launch as the runtime takes it. Not movable: `config` points to `attributes`.
struct LaunchConfig {
  cudaLaunchConfig_t config = {};
  cudaLaunchAttribute attributes[2] = {};
};

// Makes `launch` that of `kernel` in this shape. cudaErrorInvalidConfiguration for more blocks than a grid may have.
template <typename... Parameters>
cudaError_t Configure(const LaunchShape& shape, void (*kernel)(Parameters...), LaunchConfig* launch) {
  if (shape.blocks > std::numeric_limits<int32_t>::max()) return cudaErrorInvalidConfiguration;
  if (shape.shared_bytes > kPlainSharedBytes) {
    // The attribute belongs to the kernel, for all threads: every launch asks for the same size, so that none reduces
    // that of another.
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_limit));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchConfig_t& config = launch->config;
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.attrs = launch->attributes;
  if (shape.cluster_blocks > 1) {
    cudaLaunchAttribute& cluster = launch->attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = static_cast<unsigned>(shape.cluster_blocks);
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  }
  return cudaSuccess;
}

// Returns a CUDA error from the enclosing function.
#define NORMD_CUDA_RETURN_IF_ERROR(expression)                    \
  do {                                                            \
    const cudaError_t normd_cuda_error = (expression);            \
    if (normd_cuda_error != cudaSuccess) return normd_cuda_error; \
  } while (false)

// Starts `kernel` on `stream`. A grid without blocks is not launched. REQUIRES: the kernel begins with
// WaitForLaunchBefore().
template <typename... Parameters, typename... Arguments>
cudaError_t Launch(const LaunchShape& shape, cudaStream_t stream, void (*kernel)(Parameters...),
                   Arguments&&... arguments) {
  if (shape.blocks == 0) return cudaSuccess;
  LaunchConfig launch;
  NORMD_CUDA_RETURN_IF_ERROR(Configure(shape, kernel, &launch));
  launch.config.stream = stream;
#if defined(__CUDACC__)
  if (LaunchesOverlap()) {
    cudaLaunchAttribute& overlap = launch.attributes[launch.config.numAttrs++];
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
  }
#endif
  return cudaLaunchKernelEx(&launch.config, kernel, std::forward<Arguments>(arguments)...);
}

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_DEVICE_H_
