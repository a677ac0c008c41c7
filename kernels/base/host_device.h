// Marks what both the host and a GPU run. Standard headers only: device code reads it.
#ifndef NORMD_KERNELS_BASE_HOST_DEVICE_H_
#define NORMD_KERNELS_BASE_HOST_DEVICE_H_

#if defined(__CUDACC__)
#define NORMD_HOST_DEVICE __host__ __device__
#else
#define NORMD_HOST_DEVICE
#endif

#endif  // NORMD_KERNELS_BASE_HOST_DEVICE_H_
