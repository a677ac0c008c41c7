#include "tests/device/bench/device.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "kernels/cuda/status.h"
#include "tests/bench/comparison.h"
#include "tests/bench/or_die.h"

namespace normd::bench {

namespace {

int Attribute(cudaDeviceAttr attribute) {
  int value = 0;
  OrDieCuda(cudaDeviceGetAttribute(&value, attribute, 0), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace

void OrDieCuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) Die(std::string(what) + ": " + cudaGetErrorString(error));
}

absl::StatusOr<GpuFacts> FindGpu() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return absl::UnavailableError(cudaGetErrorString(error));
  if (count == 0) return absl::UnavailableError("no CUDA device");
  cudaDeviceProp properties;
  OrDieCuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  if (properties.major < 8) return absl::UnavailableError("compute capability below 8.0");
  GpuFacts facts;
  facts.limits = {.multiprocessors = properties.multiProcessorCount,
                  .shared_bytes = static_cast<int64_t>(properties.sharedMemPerBlockOptin)};
  facts.limits.has_clusters = cuda::HasClusters(facts.limits, 0);
  facts.free_bytes = FreeBytes();
  facts.l2_bytes = properties.l2CacheSize;
  // Two transfers a clock; kHz and bits.
  facts.peak_bytes_per_second =
      2e3 * Attribute(cudaDevAttrMemoryClockRate) * Attribute(cudaDevAttrGlobalMemoryBusWidth) / 8;
  int driver = 0;
  OrDieCuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  facts.text =
      absl::StrFormat("%s, compute capability %d.%d, %d multiprocessors, L2 %d MiB, peak %.2f TB/s, CUDA %d.%d",
                      properties.name, properties.major, properties.minor, properties.multiProcessorCount,
                      facts.l2_bytes >> 20, facts.peak_bytes_per_second / 1e12, driver / 1000, driver % 1000 / 10);
  return facts;
}

int64_t FreeBytes() {
  size_t free_bytes = 0;
  size_t all_bytes = 0;
  OrDieCuda(cudaMemGetInfo(&free_bytes, &all_bytes), "cudaMemGetInfo");
  return static_cast<int64_t>(free_bytes);
}

GpuMemory::GpuMemory(int64_t bytes) : bytes_(bytes) {
  void* data = nullptr;
  OrDieCuda(cudaMalloc(&data, static_cast<size_t>(bytes)), "cudaMalloc");
  data_ = static_cast<char*>(data);
}

void GpuMemory::Fill(const std::string& content) {
  int64_t filled = std::min(bytes_, static_cast<int64_t>(content.size()));
  OrDieCuda(cudaMemcpy(data_, content.data(), static_cast<size_t>(filled), cudaMemcpyHostToDevice), "cudaMemcpy");
  while (filled < bytes_) {
    const int64_t more = std::min(filled, bytes_ - filled);
    OrDieCuda(cudaMemcpy(data_ + filled, data_, static_cast<size_t>(more), cudaMemcpyDeviceToDevice), "cudaMemcpy");
    filled += more;
  }
  OrDieCuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

GpuGraph::GpuGraph(cudaStream_t stream, int launches, absl::FunctionRef<void(int)> launch)
    : stream_(stream), launches_(launches) {
  OrDieCuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  for (int i = 0; i < launches; ++i) launch(i);
  cudaGraph_t captured = nullptr;
  OrDieCuda(cudaStreamEndCapture(stream, &captured), "cudaStreamEndCapture");
  OrDieCuda(cudaGraphInstantiate(&graph_, captured, 0), "cudaGraphInstantiate");
  OrDieCuda(cudaGraphDestroy(captured), "cudaGraphDestroy");
  OrDieCuda(cudaGraphUpload(graph_, stream), "cudaGraphUpload");
  OrDieCuda(cudaEventCreate(&begin_), "cudaEventCreate");
  OrDieCuda(cudaEventCreate(&end_), "cudaEventCreate");
}

GpuGraph::~GpuGraph() {
  cudaEventDestroy(begin_);
  cudaEventDestroy(end_);
  cudaGraphExecDestroy(graph_);
}

double GpuGraph::Run(bool warm_up) {
  if (warm_up) OrDieCuda(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch");
  OrDieCuda(cudaEventRecord(begin_, stream_), "cudaEventRecord");
  OrDieCuda(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch");
  OrDieCuda(cudaEventRecord(end_, stream_), "cudaEventRecord");
  OrDieCuda(cudaEventSynchronize(end_), "cudaEventSynchronize");
  float milliseconds = 0;
  OrDieCuda(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
  return milliseconds / 1e3 / launches_;
}

std::vector<double> MedianSeconds(const std::vector<std::function<double()>>& candidates) {
  constexpr int kRounds = 7;
  const auto run = [&](size_t i, bool) -> absl::StatusOr<double> { return candidates[i](); };
  std::vector<double> medians;
  for (const std::vector<double>& rounds : OrDie(Interleave<double>(candidates.size(), kRounds, run))) {
    medians.push_back(Median(rounds));
  }
  return medians;
}

}  // namespace normd::bench
