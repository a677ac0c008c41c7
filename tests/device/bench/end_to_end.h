// Whole requests through the CUDA backend, as the engine submits them: tensors in host memory, which cross the bus
// twice, and in CUDA memory, beside the bare kernel; small requests together and one by one. The second half of the GPU
// bench. Threads: one, beside the backend's.
#ifndef NORMD_TESTS_DEVICE_BENCH_END_TO_END_H_
#define NORMD_TESTS_DEVICE_BENCH_END_TO_END_H_

#include "tests/bench/report.h"
#include "tests/device/bench/device.h"

namespace normd::bench {

// `rounds` interleaved rounds each; medians.
void MeasureEndToEnd(const GpuFacts& gpu, int rounds, Report* report);

}  // namespace normd::bench

#endif  // NORMD_TESTS_DEVICE_BENCH_END_TO_END_H_
