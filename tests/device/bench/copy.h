// The opponent of the GPU bench that is ours: a copy by 16-byte accesses, as plain as a kernel gets. The bench takes
// the better of it and of the runtime's own copy. Threads: safe from any, one stream each; nothing here waits.
#ifndef NORMD_TESTS_DEVICE_BENCH_COPY_H_
#define NORMD_TESTS_DEVICE_BENCH_COPY_H_

#include <cuda_runtime_api.h>

#include <cstdint>

namespace normd::bench {

// Copies within the device. REQUIRES: both aligned to 16 bytes.
cudaError_t CopyBytes(const void* from, void* to, int64_t bytes, cudaStream_t stream);

}  // namespace normd::bench

#endif  // NORMD_TESTS_DEVICE_BENCH_COPY_H_
