// Found instead of the toolkit's <cuda_fp16.h> (16-bit floats) where a test compiles kernels for the CPU: see
// tests/support/cuda_on_cpu/cuda_on_cpu.h, which has all of it. The kernels' sources do not know which they got.
// Threads and ownership as there.
#ifndef NORMD_TESTS_SUPPORT_CUDA_ON_CPU_CUDA_FP16_H_
#define NORMD_TESTS_SUPPORT_CUDA_ON_CPU_CUDA_FP16_H_

#include "tests/support/cuda_on_cpu/cuda_on_cpu.h"

#endif  // NORMD_TESTS_SUPPORT_CUDA_ON_CPU_CUDA_FP16_H_
