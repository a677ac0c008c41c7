#include "tests/device/bench/kernels.h"

#include <algorithm>
#include <memory>
#include <regex>
#include <utility>
#include <vector>

#include "kernels/cuda/arena.h"
#include "kernels/cuda/run.h"
#include "tests/bench/store/or_die.h"
#include "tests/device/bench/copy.h"
#include "tests/support/case.h"

namespace normd::bench {

namespace {

constexpr int kLeastLaunches = 20;
enum Contestant { kExact, kFast, kRuntimeCopy, kOwnCopy, kContestants };

// What one shape is run on: `groups` of inputs and outputs, one a launch in turn, so that none is in the L2 cache when
// it comes round again.
class Bed {
 public:
  Bed(const GpuFacts& gpu, const GpuShape& shape, cudaStream_t stream)
      : shape_(shape),
        limits_(gpu.limits),
        stream_(stream),
        bytes_((shape.BytesRead() + 255) / 256 * 256),
        groups_(SetsOf(gpu, bytes_)),
        in_(groups_ * bytes_),
        out_(groups_ * bytes_),
        parameters_(kParameters * int64_t{sizeof(double)}),
        parameters32_(kParameters * int64_t{sizeof(float)}),
        moments_(kParameters * 32 * int64_t{sizeof(double)}),
        arena_(gpu.free_bytes / 2) {
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

  int launches() const { return static_cast<int>(std::max<int64_t>(kLeastLaunches, groups_)); }

  std::unique_ptr<GpuGraph> Capture(int contestant) {
    plan_ = OrDie(MakePlan(shape_.workload.Spec(), shape_.workload.dtype, shape_.workload.ShapeOf(),
                           shape_.workload.Options(contestant == kFast ? Precision::kFast : Precision::kExact)));
    // So that no memory is taken while launches are captured.
    for (int i = 0; i < 2; ++i) {
      Launch(contestant, i);
      OrDieCuda(cudaStreamSynchronize(stream_), "kernel");
      arena_.Reset();
    }
    return std::make_unique<GpuGraph>(stream_, launches(), [&](int i) {
      Launch(contestant, i);
      arena_.Reset();  // launches follow each other: scratch may be the same
    });
  }

 private:
  static constexpr int64_t kParameters = 1 << 18;  // the longest row

  static int64_t SetsOf(const GpuFacts& gpu, int64_t bytes) {
    if (2 * bytes > 16 * gpu.l2_bytes) return 1;  // leaves nothing of its beginning behind
    return std::max<int64_t>(2, 2 * gpu.l2_bytes / (2 * bytes) + 1);
  }

  void Launch(int contestant, int64_t i) {
    char* const in = in_.data() + i % groups_ * bytes_;
    char* const out = out_.data() + i % groups_ * bytes_;
    const int64_t bytes = shape_.BytesRead();
    if (contestant == kRuntimeCopy) {
      OrDieCuda(cudaMemcpyAsync(out, in, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream_), "copy");
    } else if (contestant == kOwnCopy) {
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
  const int64_t bytes_, groups_;  // bytes of the inputs, or outputs, of a group
  GpuMemory in_, out_, parameters_, parameters32_, moments_;
  cuda::Arena arena_;
  NormPlan plan_;
};

std::vector<double> Race(Bed* bed, int rounds) {
  std::vector<std::unique_ptr<GpuGraph>> graphs;
  for (int who = 0; who < kContestants; ++who) {
    graphs.push_back(bed->Capture(who));
    graphs.back()->Run();  // warm
  }
  std::vector<std::vector<double>> times(kContestants);
  for (int round = 0; round < rounds; ++round) {
    for (int who = 0; who < kContestants; ++who) times[who].push_back(graphs[who]->Run());
  }
  std::vector<double> medians;
  for (std::vector<double>& one : times) medians.push_back(Median(std::move(one)));
  return medians;
}

std::string PeerCell(const std::string& name, const std::string& form, double floor, double seconds,
                     const KernelBench& options, Report* report) {
  const auto shape = options.peers.find(name);
  if (shape == options.peers.end() || !shape->second.contains(form)) return "-";
  Figure figure = {.name = name + " / torch " + form, .value = shape->second.at(form) / seconds, .unit = "x"};
  if (floor > 0) figure.floor = floor;
  report->Add(figure);
  return Fixed(figure.value, 2);
}

void ReportShape(const GpuFacts& gpu, const GpuShape& shape, const std::vector<double>& seconds,
                 const KernelBench& options, Report* report) {
  const std::string name = shape.Name();
  const double bytes = 2.0 * static_cast<double>(shape.BytesRead());
  const double copy = std::min(seconds[kRuntimeCopy], seconds[kOwnCopy]);
  const bool fits = cuda::FitsOnChip(gpu.limits, shape.workload.dtype, shape.SetElements());
  Figure of_copy = {.name = name, .value = copy / seconds[kFast], .unit = "of copy"};
  of_copy.floor = fits && shape.floor_fits > 0 ? shape.floor_fits : shape.floor;
  report->Add(of_copy);
  const Figure exact = {.name = name + " EXACT",
                        .value = seconds[kFast] / seconds[kExact],
                        .unit = "of FAST",
                        .floor = shape.exact_floor};
  report->Add(exact);
  report->Add({.name = name + " speed", .value = bytes / seconds[kFast] / 1e12, .unit = "TB/s"});
  report->Row({name, Fixed(seconds[kFast] * 1e6, 1), Fixed(bytes / seconds[kFast] / 1e12, 2),
               Fixed(100 * bytes / seconds[kFast] / gpu.peak_bytes_per_second, 1), Fixed(of_copy.value, 3),
               Fixed(*of_copy.floor, 2), Fixed(exact.value, 2), Fixed(bytes / copy / 1e12, 2),
               PeerCell(name, "eager", shape.eager_floor, seconds[kFast], options, report),
               PeerCell(name, "compile", shape.compile_floor, seconds[kFast], options, report)});
}

}  // namespace

void MeasureGpuKernels(const GpuFacts& gpu, const KernelBench& options, Report* report) {
  const std::regex only(options.only);
  cudaStream_t stream = nullptr;
  OrDieCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  report->Table(
      "kernels alone, tensors on the device and in no cache; times are FAST's",
      {"shape", "us", "TB/s", "% of peak", "of copy", "floor", "EXACT/FAST", "copy TB/s", "x eager", "x compile"});
  for (const GpuShape& shape : GpuShapes()) {
    if (!std::regex_search(shape.Name(), only)) continue;
    if (!Bed::HasRoom(gpu, shape)) {
      report->NotMeasured(shape.Name(), "the device has not enough free memory");
      continue;
    }
    Bed bed(gpu, shape, stream);
    ReportShape(gpu, shape, Race(&bed, options.rounds), options, report);
  }
  OrDieCuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  if (options.peers.empty()) report->NotMeasured("torch", "no times of PyTorch were given (--peers)");
}

}  // namespace normd::bench
