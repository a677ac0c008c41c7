// What the bench of the CUDA backend measures. Threads: one, beside the backend's.
#ifndef NORMD_TESTS_DEVICE_BENCH_SECTIONS_H_
#define NORMD_TESTS_DEVICE_BENCH_SECTIONS_H_

#include "tests/bench/report.h"
#include "tests/bench/suite.h"
#include "tests/device/bench/device.h"

namespace normd::bench {

// Kernels alone, on tensors that lie on the device and in no cache, beside copies of the same bytes and, where
// flags.peers names a file that tests/device/peers.py wrote on this machine, PyTorch's times.
void MeasureGpuKernels(const GpuFacts& gpu, const Flags& flags, Report* report);

// Whole requests through the CUDA backend, as the engine submits them: tensors in host memory, which cross the bus
// twice, and in CUDA memory, beside the bare kernel; small requests together and one by one.
void MeasureRequests(const GpuFacts& gpu, Report* report);

}  // namespace normd::bench

#endif  // NORMD_TESTS_DEVICE_BENCH_SECTIONS_H_
