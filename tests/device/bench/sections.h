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

// Answers what standard input asks, a line for a line, until it ends, so that tests/device/turns.py can time several
// programs in the same rounds. NAME is that of any shape, FORM one of fast, exact, runtime_copy and own_copy:
//   shape NAME  takes the memory of a shape in place of the one before: "ok"
//   run FORM    the seconds of one launch, of a graph that is captured when its form is first asked for
//   warm FORM   the same on one set of tensors, which stays in the L2 cache; "none" where the shape does not fit in it
//   done        gives all memory back: "ok"
// What cannot be answered is "error WHY".
void ServeTurns(const GpuFacts& gpu);

// Whole requests through the CUDA backend, as the engine submits them: tensors in host memory, which cross the bus
// twice, and in CUDA memory, beside the bare kernel; small requests together and one by one.
void MeasureRequests(const GpuFacts& gpu, Report* report);

// EXACT beside FAST, request by request: what the kernels leave of EXACT (kernels/nearest.h) is decided on the host. It
// has not run on a GPU yet.
void MeasureNearest(Report* report);

}  // namespace normd::bench

#endif  // NORMD_TESTS_DEVICE_BENCH_SECTIONS_H_
