// One launch of a kernel on the CPU's CUDA, for tests of it. In tests/device alone. Threads: as the CPU's CUDA. Owns
// nothing: kernels read and write memory of the test, which is the same here.
#ifndef NORMD_TESTS_DEVICE_LAUNCH_ONCE_H_
#define NORMD_TESTS_DEVICE_LAUNCH_ONCE_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

namespace normd {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  dim3 cluster;
  cudaStream_t stream = nullptr;
};

template <typename... Parameters, typename... Arguments>
cudaError_t LaunchOnce(const LaunchShape& shape, void (*kernel)(Parameters...), Arguments&&... arguments) {
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {shape.cluster.x, shape.cluster.y, shape.cluster.z};
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = shape.stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

}  // namespace normd

#endif  // NORMD_TESTS_DEVICE_LAUNCH_ONCE_H_
