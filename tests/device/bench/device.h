// The device of the GPU bench: what it is, memory of its own, and launches timed as a graph. A failure ends the bench.
// Threads: one. Ownership: destructors free what was taken.
#ifndef NORMD_TESTS_DEVICE_BENCH_DEVICE_H_
#define NORMD_TESTS_DEVICE_BENCH_DEVICE_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/kernels.h"

namespace normd::bench {

struct GpuFacts {
  std::string text;  // "NVIDIA H100 80GB HBM3, compute capability 9.0, ..."
  cuda::DeviceLimits limits;
  int64_t l2_bytes = 0;
  int64_t free_bytes = 0;
  double peak_bytes_per_second = 0;  // memory clock times bus width
};

// UNAVAILABLE with the runtime's reason where there is no device.
absl::StatusOr<GpuFacts> FindGpu();

void OrDieCuda(cudaError_t error, const char* what);

// Of the device's memory, now.
int64_t FreeBytes();

class GpuMemory {
 public:
  explicit GpuMemory(int64_t bytes);
  ~GpuMemory() { cudaFree(data_); }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  char* data() const { return data_; }
  // Fills all of it with `content`, repeated.
  void Fill(const std::string& content);

 private:
  const int64_t bytes_;
  char* data_ = nullptr;
};

// Launches captured once and timed together.
class GpuGraph {
 public:
  // Captures launch(0), ..., launch(launches - 1), which must put work on `stream` alone.
  GpuGraph(cudaStream_t stream, int launches, absl::FunctionRef<void(int)> launch);
  ~GpuGraph();
  GpuGraph(const GpuGraph&) = delete;
  GpuGraph& operator=(const GpuGraph&) = delete;

  // Runs all of them; the seconds of one, by events before and behind. With `warm_up`, after a run that is not timed,
  // which the timed one follows without a gap: for a device that has just run another process.
  double Run(bool warm_up = false);

 private:
  const cudaStream_t stream_;
  const int launches_;
  cudaGraphExec_t graph_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// The median of 7 interleaved rounds of each candidate, which returns the seconds of one call.
std::vector<double> MedianSeconds(const std::vector<std::function<double()>>& candidates);

}  // namespace normd::bench

#endif  // NORMD_TESTS_DEVICE_BENCH_DEVICE_H_
