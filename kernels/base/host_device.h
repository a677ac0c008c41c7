// NORMD_HOST_DEVICE marks functions that both the host and a GPU run: the arithmetic that kernels/cpu and kernels/cuda
// share. Empty outside nvcc.
// In the path: group_statistics.h, pairs.h and power_sum.h, which run between the two passes, are made of such
// functions. No includes, because device code includes this file. No state.
#ifndef NORMD_KERNELS_BASE_HOST_DEVICE_H_
#define NORMD_KERNELS_BASE_HOST_DEVICE_H_

#if defined(__CUDACC__)
#define NORMD_HOST_DEVICE __host__ __device__
#else
#define NORMD_HOST_DEVICE
#endif

#endif  // NORMD_KERNELS_BASE_HOST_DEVICE_H_
