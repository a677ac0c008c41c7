#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/arena.h"
#include "kernels/cuda/run.h"
#include "nlohmann/json.hpp"
#include "tests/bench/or_die.h"
#include "tests/device/bench/copy.h"
#include "tests/device/bench/sections.h"
#include "tests/device/bench/shapes.h"
#include "tests/support/case.h"

namespace normd::bench {

namespace {

constexpr int kLeastLaunches = 20;
enum Candidate { kExact, kFast, kRuntimeCopy, kOwnCopy, kCandidates };

// What one shape is run on: `sets` of inputs and outputs, one a launch in turn, so that none is in the L2 cache when it
// comes round again.
class ShapeTensors {
 public:
  ShapeTensors(const GpuFacts& gpu, const GpuShape& shape, cudaStream_t stream)
      : shape_(shape),
        limits_(gpu.limits),
        stream_(stream),
        bytes_((shape.BytesRead() + 255) / 256 * 256),
        sets_(SetsOf(gpu, bytes_)),
        in_(sets_ * bytes_),
        out_(sets_ * bytes_),
        parameters_(kParameters * int64_t{sizeof(double)}),
        parameters32_(kParameters * int64_t{sizeof(float)}),
        moments_(kParameters * 32 * int64_t{sizeof(double)}),
        arena_(gpu.free_bytes / 2, OrDie(cuda::DeviceMemory::Of(0, gpu.free_bytes / 2)), stream_) {
    in_.Fill(MakeValues(Data::kNormal, shape.workload.dtype, 1 << 20, 1));
    const std::vector<double> ones(kParameters, 1.25);
    const std::vector<float> ones32(kParameters, 1.25f);
    parameters_.Fill({reinterpret_cast<const char*>(ones.data()), ones.size() * sizeof(double)});
    parameters32_.Fill({reinterpret_cast<const char*>(ones32.data()), ones32.size() * sizeof(float)});
  }

  // Whether the device has room; two sets at least, but for tensors that no cache has a part of.
  static bool HasRoom(const GpuFacts& gpu, const GpuShape& shape) {
    return 2 * SetsOf(gpu, shape.BytesRead()) * shape.BytesRead() < gpu.free_bytes * 8 / 10;
  }

  int launches() const { return static_cast<int>(std::max<int64_t>(kLeastLaunches, sets_)); }

  std::unique_ptr<GpuGraph> Capture(int candidate) {
    plan_ = OrDie(MakePlan(shape_.workload.Spec(), shape_.workload.dtype, shape_.workload.ShapeOf(),
                           shape_.workload.Options(candidate == kFast ? Precision::kFast : Precision::kExact)));
    // So that no memory is taken while launches are captured.
    for (int i = 0; i < 2; ++i) {
      Launch(candidate, i);
      OrDieCuda(cudaStreamSynchronize(stream_), "kernel");
      arena_.Reset();
    }
    return std::make_unique<GpuGraph>(stream_, launches(), [&](int i) {
      Launch(candidate, i);
      arena_.Reset();  // launches follow each other: scratch may be the same
    });
  }

 private:
  static constexpr int64_t kParameters = 1 << 18;  // the longest row

  static int64_t SetsOf(const GpuFacts& gpu, int64_t bytes) {
    if (2 * bytes > 16 * gpu.l2_bytes) return 1;  // leaves nothing of its beginning behind
    return std::max<int64_t>(2, 2 * gpu.l2_bytes / (2 * bytes) + 1);
  }

  void Launch(int candidate, int64_t i) {
    char* const in = in_.data() + i % sets_ * bytes_;
    char* const out = out_.data() + i % sets_ * bytes_;
    const int64_t bytes = shape_.BytesRead();
    if (candidate == kRuntimeCopy) {
      OrDieCuda(cudaMemcpyAsync(out, in, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream_), "copy");
    } else if (candidate == kOwnCopy) {
      OrDieCuda(CopyBytes(in, out, bytes, stream_), "copy");
    } else {
      OrDie(cuda::RunJobs(limits_, {JobOn(in, out)}, &arena_, stream_));
    }
  }

  cuda::DeviceJob JobOn(char* in, char* out) const {
    const int64_t tensor_bytes = shape_.workload.Bytes() / 2;
    cuda::DeviceJob job;
    job.plan = &plan_;
    job.x = in;
    job.y = out;
    job.positions = CountPositions(plan_, nullptr);
    if (shape_.residual) {
      job.residual = {.dtype = plan_.dtype, .data = in + tensor_bytes};
      job.h = out + tensor_bytes;
    }
    const auto* const wide = reinterpret_cast<const double*>(parameters_.data());
    const auto* const narrow = reinterpret_cast<const float*>(parameters32_.data());
    if (plan_.parameter_length > 0) {
      job.parameters = {.weight = wide, .weight32 = narrow, .equal_f32 = true};
      if (shape_.workload.TakesBias()) job.parameters.bias = wide, job.parameters.bias32 = narrow;
    }
    if (plan_.given_statistics) {
      job.given_mean = job.given_variance = wide;
    } else if (shape_.workload.op == Op::kBatchTraining) {  // for the running statistics
      job.outputs.moments = reinterpret_cast<double*>(moments_.data());
    }
    return job;
  }

  const GpuShape& shape_;
  const cuda::DeviceLimits limits_;
  const cudaStream_t stream_;
  const int64_t bytes_, sets_;  // bytes of the inputs, or outputs, of a set
  GpuMemory in_, out_, parameters_, parameters32_, moments_;
  cuda::Arena arena_;
  NormPlan plan_;
};

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

// By how much a peer's form is slower than `seconds`.
Cell PeerCell(const PeerTimes& peers, const std::string& name, const std::string& form, double floor, double seconds) {
  const auto shape = peers.find(name);
  if (shape == peers.end() || !shape->second.contains(form)) return {};
  return Ratio(shape->second.at(form) / seconds, floor > 0 ? std::optional(floor) : std::nullopt);
}

void MeasureShape(const GpuFacts& gpu, const GpuShape& shape, const PeerTimes& peers, cudaStream_t stream,
                  Report* report) {
  ShapeTensors tensors(gpu, shape, stream);
  std::vector<std::unique_ptr<GpuGraph>> graphs;
  std::vector<std::function<double()>> candidates;
  for (int candidate = 0; candidate < kCandidates; ++candidate) {
    graphs.push_back(tensors.Capture(candidate));
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
                     Ratio(copy / fast, fits && shape.floor_fits > 0 ? shape.floor_fits : shape.floor),
                     Ratio(fast / seconds[kExact], shape.exact_floor), Ratio(bytes / copy / 1e12),
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
  for (const GpuShape& shape : GpuShapes()) {
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
