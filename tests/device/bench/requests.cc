#include <algorithm>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "kernels/cuda/arena.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/run.h"
#include "tests/bench/kernels/workload.h"
#include "tests/bench/machine.h"
#include "tests/bench/or_die.h"
#include "tests/device/bench/sections.h"
#include "tests/support/case.h"

namespace normd::bench {

namespace {

constexpr int kInFlight = 64;
constexpr int kLaunches = 20;

// Every submission is one list; waits for all of them.
void SubmitAll(Backend& backend, const std::vector<std::vector<Job>>& lists) {
  std::latch left(static_cast<std::ptrdiff_t>(lists.size()));
  for (const std::vector<Job>& jobs : lists) {
    backend.Submit(jobs, [&left](const absl::Status& status) {
      OrDie(status);
      left.count_down();
    });
  }
  left.wait();
}

// `count` requests of the same plan, with tensors of their own in host memory and in CUDA memory.
class Requests {
 public:
  Requests(const Workload& workload, int count, Precision precision = Precision::kFast)
      : plan_(OrDie(MakePlan(workload.Spec(), workload.dtype, workload.ShapeOf(), workload.Options(precision)))),
        bytes_(workload.Bytes() / 2),
        count_(count),
        host_x_(MakeValues(Data::kNormal, workload.dtype, workload.Elements() * count, 1)),
        host_y_(host_x_.size(), '\0'),
        x_(bytes_ * count),
        y_(bytes_ * count) {
    x_.Fill(host_x_);
  }

  Job Request(int i, bool in_cuda) {
    Job job;
    job.plan = &plan_;
    job.x = (in_cuda ? x_.data() : host_x_.data()) + i * bytes_;
    job.y = (in_cuda ? y_.data() : host_y_.data()) + i * bytes_;
    if (in_cuda) job.x_space = job.y_space = CudaSpace(CudaBackendOptions().device);
    return job;
  }
  std::vector<Job> Together(bool in_cuda) {
    std::vector<Job> jobs;
    for (int i = 0; i < count_; ++i) jobs.push_back(Request(i, in_cuda));
    return jobs;
  }
  cuda::DeviceJob OnDevice() const {
    return {.plan = &plan_, .x = x_.data(), .positions = CountPositions(plan_, nullptr), .y = y_.data()};
  }

 private:
  const NormPlan plan_;
  const int64_t bytes_;
  const int count_;
  std::string host_x_, host_y_;
  GpuMemory x_, y_;
};

std::function<double()> WallSeconds(std::function<void()> call) {
  return [call = std::move(call)] {
    const absl::Time begin = SteadyNow();
    call();
    return absl::ToDoubleSeconds(SteadyNow() - begin);
  };
}

// One request at a time, here and there, beside launches of the bare kernel on the same tensors.
void MeasureOne(const GpuFacts& gpu, Backend& backend, const Workload& workload, Report* report) {
  Requests requests(workload, 1);
  cudaStream_t stream = nullptr;
  OrDieCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  const cuda::OwnedStream owner(stream);
  cuda::Arena arena(gpu.free_bytes / 8, OrDie(cuda::DeviceMemory::Of(0, gpu.free_bytes / 8)), stream);
  const auto launch = [&](int) {
    OrDie(cuda::RunJobs(gpu.limits, {requests.OnDevice()}, &arena, stream));
    arena.Reset();
  };
  launch(0);
  OrDieCuda(cudaStreamSynchronize(stream), "kernel");
  GpuGraph bare(stream, kLaunches, launch);
  const auto submit = [&](bool in_cuda) {
    return WallSeconds([&, in_cuda] { SubmitAll(backend, {requests.Together(in_cuda)}); });
  };
  const std::vector<double> seconds = MedianSeconds({[&] { return bare.Run(); }, submit(true), submit(false)});
  const auto bytes = static_cast<double>(workload.Bytes());
  report->Row("request " + workload.Name(),
              {Amount(seconds[0] * 1e6), Amount(seconds[1] * 1e6), Amount(seconds[2] * 1e6),
               Ratio(seconds[0] / seconds[1]), Amount(bytes / seconds[1] / 1e9), Amount(bytes / seconds[2] / 1e9)});
}

// 64 requests as one list, as 64 lists in flight, and as one list after the other.
void MeasureBatching(Backend& backend, const Workload& workload, bool in_cuda, Report* report) {
  Requests requests(workload, kInFlight);
  const auto together = [&] { SubmitAll(backend, {requests.Together(in_cuda)}); };
  const auto in_flight = [&] {
    std::vector<std::vector<Job>> lists;
    for (int i = 0; i < kInFlight; ++i) lists.push_back({requests.Request(i, in_cuda)});
    SubmitAll(backend, lists);
  };
  const auto one_by_one = [&] {
    for (int i = 0; i < kInFlight; ++i) SubmitAll(backend, {{requests.Request(i, in_cuda)}});
  };
  const std::vector<double> seconds =
      MedianSeconds({WallSeconds(together), WallSeconds(in_flight), WallSeconds(one_by_one)});
  report->Row("64 of " + workload.Name() + (in_cuda ? ", CUDA" : ", host"),
              {Amount(kInFlight / seconds[0]), Amount(kInFlight / seconds[1]), Amount(kInFlight / seconds[2]),
               Ratio(seconds[1] / seconds[0]), Ratio(seconds[2] / seconds[0])});
}

// Both precisions on tensors in CUDA memory.
void MeasureNearestOf(Backend& cuda, const Workload& workload, Report* report) {
  Requests fast(workload, 1, Precision::kFast), exact(workload, 1, Precision::kExact);
  const auto submit = [&cuda](Requests& requests) {
    return WallSeconds([&] { SubmitAll(cuda, {requests.Together(true)}); });
  };
  const std::vector<double> seconds = MedianSeconds({submit(fast), submit(exact)});
  report->Row("nearest " + workload.Name(),
              {Amount(seconds[0] * 1e6), Amount(seconds[1] * 1e6), Ratio(seconds[0] / seconds[1])});
}

}  // namespace

void MeasureNearest(Report* report) {
  const std::unique_ptr<Backend> cuda = OrDie(MakeCudaBackend(CudaBackendOptions()));
  report->Table("EXACT beside FAST, one request at a time, in CUDA memory", {"FAST us", "EXACT us", "FAST/EXACT"});
  for (const Op op : {Op::kLayer, Op::kRms}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t rows : {256, 16384}) {
        MeasureNearestOf(*cuda, {.op = op, .outer = rows, .row = 4096, .dtype = dtype}, report);
      }
    }
  }
}

void MeasureRequests(const GpuFacts& gpu, Report* report) {
  const std::unique_ptr<Backend> cuda = OrDie(MakeCudaBackend(CudaBackendOptions()));
  report->Table("one request at a time, FAST; the kernel is timed on the same tensors, in the L2 cache where they fit",
                {"kernel us", "CUDA us", "host us", "kernel/CUDA", "CUDA GB/s", "host GB/s"});
  for (const auto& [rows, row] : std::vector<std::pair<int64_t, int64_t>>{{256, 4096}, {4096, 4096}, {16384, 4096}}) {
    MeasureOne(gpu, *cuda, {.op = Op::kRms, .outer = rows, .row = row, .dtype = DType::kBF16}, report);
  }
  report->Table("requests of 256 rows, 64 of them: requests/s",
                {"one list", "64 lists", "one by one", "x 64 lists", "x one"});
  for (const int64_t row : {256, 1024, 4096}) {
    for (const bool in_cuda : {true, false}) {
      MeasureBatching(*cuda, {.op = Op::kRms, .outer = 256, .row = row, .dtype = DType::kBF16}, in_cuda, report);
    }
  }
}

}  // namespace normd::bench
