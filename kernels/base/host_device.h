// NORMD_HOST_DEVICE marks functions that both the host and a GPU run: the arithmetic that kernels/cpu and kernels/cuda
// share. Empty outside nvcc. No includes, because device code includes this file.
#ifndef NORMD_KERNELS_BASE_HOST_DEVICE_H_
#define NORMD_KERNELS_BASE_HOST_DEVICE_H_

#if defined(__CUDACC__)
#define NORMD_HOST_DEVICE __host__ __device__
#else
#define NORMD_HOST_DEVICE
#endif

#endif  // NORMD_KERNELS_BASE_HOST_DEVICE_H_
