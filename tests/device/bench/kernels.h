// Kernels alone, on tensors that lie on the device and in no cache, beside copies of the same bytes: the first half of
// the GPU bench. Threads: one.
#ifndef NORMD_TESTS_DEVICE_BENCH_KERNELS_H_
#define NORMD_TESTS_DEVICE_BENCH_KERNELS_H_

#include <map>
#include <string>

#include "tests/bench/report.h"
#include "tests/device/bench/device.h"
#include "tests/device/bench/shapes.h"

namespace normd::bench {

// Seconds of a peer by shape and form ("eager", "compile"), as tests/device/peers.py found them on this machine.
using PeerTimes = std::map<std::string, std::map<std::string, double>>;

struct KernelBench {
  int rounds = 7;
  std::string only;  // regular expression over names of shapes
  PeerTimes peers;
};

void MeasureGpuKernels(const GpuFacts& gpu, const KernelBench& options, Report* report);

}  // namespace normd::bench

#endif  // NORMD_TESTS_DEVICE_BENCH_KERNELS_H_
