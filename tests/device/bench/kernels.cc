#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/bench/or_die.h"
#include "tests/device/bench/sections.h"
#include "tests/device/bench/shape_tensors.h"
#include "tests/device/bench/shapes.h"

namespace normd::bench {

namespace {

// Seconds of a peer by shape and form ("eager", "compile").
using PeerTimes = std::map<std::string, std::map<std::string, double>>;

// {"text": "PyTorch 2.4, ...", "seconds": {NAME: {"eager": S, "compile": S}}}
PeerTimes ReadPeers(const std::string& path, Report* report) {
  if (path.empty()) {
    report->NotMeasured("torch", "no times of PyTorch were given (--peers)");
    return {};
  }
  std::ifstream file(path);
  const nlohmann::json all = nlohmann::json::parse(file, nullptr, false);
  if (all.is_discarded() || !all.contains("text") || !all.contains("seconds")) Die("no times of a peer in " + path);
  report->Note("peers", all["text"].get<std::string>());
  return all["seconds"].get<PeerTimes>();
}

std::optional<double> FloorOf(double floor) { return floor > 0 ? std::optional(floor) : std::nullopt; }

// By how much a peer's form is slower than `seconds`.
Cell PeerCell(const PeerTimes& peers, const std::string& name, const std::string& form, double floor, double seconds) {
  const auto shape = peers.find(name);
  if (shape == peers.end() || !shape->second.contains(form)) return {};
  return Ratio(shape->second.at(form) / seconds, FloorOf(floor));
}

void MeasureShape(const GpuFacts& gpu, const GpuShape& shape, const PeerTimes& peers, cudaStream_t stream,
                  Report* report) {
  ShapeTensors tensors(gpu, shape, CacheState::kCold, stream);
  std::vector<std::unique_ptr<GpuGraph>> graphs;
  std::vector<std::function<double()>> candidates;
  for (int candidate = 0; candidate < kCandidates; ++candidate) {
    graphs.push_back(tensors.Capture(candidate, tensors.LaunchesOf(kLeastLaunches)));
    candidates.emplace_back([graph = graphs.back().get()] { return graph->Run(); });
  }
  const std::vector<double> seconds = MedianSeconds(candidates);
  const std::string name = shape.Name();
  const double bytes = 2.0 * static_cast<double>(shape.BytesRead());
  const double copy = std::min(seconds[kRuntimeCopy], seconds[kOwnCopy]);
  const double fast = seconds[kFast];
  const bool fits = cuda::FitsOnChip(gpu.limits, shape.workload.dtype, shape.GroupElements());
  report->Row(name, {Cell{.value = fast * 1e6, .decimals = 1}, Ratio(bytes / fast / 1e12),
                     Ratio(100 * bytes / fast / gpu.peak_bytes_per_second),
                     Ratio(copy / fast, FloorOf(fits && shape.floor_fits > 0 ? shape.floor_fits : shape.floor)),
                     Ratio(fast / seconds[kExact]), Ratio(bytes / copy / 1e12),
                     PeerCell(peers, name, "eager", shape.eager_floor, fast),
                     PeerCell(peers, name, "compile", shape.compile_floor, fast)});
}

}  // namespace

void MeasureGpuKernels(const GpuFacts& gpu, const Flags& flags, Report* report) {
  const PeerTimes peers = ReadPeers(flags.peers, report);
  cudaStream_t stream = nullptr;
  OrDieCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  report->Table("kernels alone, tensors on the device and in no cache; times are FAST's, ratios of speed (floor)",
                {"us", "TB/s", "% of peak", "of copy", "EXACT/FAST", "copy TB/s", "x eager", "x compile"});
  for (const GpuShape& shape : GpuShapes(flags.more_shapes)) {
    if (!flags.Chosen(shape.Name())) continue;
    if (!ShapeTensors::HasRoom(gpu, shape)) {
      report->NotMeasured(shape.Name(), "the device has not enough free memory");
      continue;
    }
    MeasureShape(gpu, shape, peers, stream, report);
  }
  OrDieCuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

}  // namespace normd::bench
