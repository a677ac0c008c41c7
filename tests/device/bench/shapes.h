// What bench_cuda compares: an operation on a shape and dtype, and the floors of its speed. The one list of shapes and
// floors; tests/device/peers.py reads it from `bench_cuda --list`. Plain values.
#ifndef NORMD_TESTS_DEVICE_BENCH_SHAPES_H_
#define NORMD_TESTS_DEVICE_BENCH_SHAPES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/bench/kernels/workload.h"

namespace normd::bench {

struct GpuShape {
  Workload workload;
  bool residual = false;       // x + residual is normalised and written, too
  double floor = 0;            // FAST's least share of a copy's speed; 0: none is stated
  double floor_fits = 0;       // the same where a statistics group fits on chip; 0: no other
  double eager_floor = 0;      // least speed as a multiple of PyTorch eager's; 0: none
  double compile_floor = 1.0;  // least speed as a multiple of torch.compile's; 0: none

  std::string Name() const { return workload.Name() + (residual ? " +residual" : ""); }
  // Elements of x that one statistics group reads where it is a row of memory.
  int64_t GroupElements() const;
  // Of all that is read, and as many are written.
  int64_t BytesRead() const { return (residual ? 2 : 1) * workload.Bytes() / 2; }
};

// With `more`, a further list behind it, for which no floors are stated: what serving normalises, rows that are narrow
// or no whole number of vectors, and f16.
std::vector<GpuShape> GpuShapes(bool more);

// The list as JSON, for programs.
std::string GpuShapesJson(bool more);

}  // namespace normd::bench

#endif  // NORMD_TESTS_DEVICE_BENCH_SHAPES_H_
