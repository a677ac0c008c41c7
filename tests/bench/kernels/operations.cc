// What is said of these operations, measured: what a second thread brings, and the time of one operation beside
// another's on the same bytes.
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/strings.h"
#include "tests/bench/kernels/kernel_comparison.h"
#include "tests/bench/kernels/vector_loops.h"

namespace normd::bench {

namespace {

constexpr double kThreadsFloor = 1.7;

// EXACT's or FAST's seconds a call of each workload, on as many threads as `threads` says.
std::vector<double> SecondsOf(const std::vector<std::pair<Workload, int>>& workloads_and_threads, size_t precision,
                              KernelComparison* comparison) {
  Candidates candidates;
  std::vector<KernelComparison::Entry> entries;
  for (const auto& [workload, threads] : workloads_and_threads) {
    candidates.push_back(MakeNormd(precision == kFast ? Precision::kFast : Precision::kExact));
    entries.push_back({candidates.back().get(), workload, threads});
  }
  std::vector<double> seconds;
  for (const Timing& timing : comparison->Run(entries)) seconds.push_back(timing->seconds);
  return seconds;
}

Workload Rows(Op op, DType dtype, int64_t rows, int64_t d) {
  return {.op = op, .outer = rows, .row = d, .dtype = dtype};
}

Workload Images(Op op, DType dtype, Layout layout) {  // 1568 times 1024 elements
  return {.op = op, .layout = layout, .outer = 8, .channels = 1024, .side = 14, .dtype = dtype};
}

// Rows of the times of some workloads, by number, beside others', for both precisions on one thread.
void AddTimeRatios(const std::string& name, const std::vector<Workload>& workloads,
                   const std::vector<std::pair<size_t, size_t>>& ratios, KernelComparison* comparison, Report* report) {
  std::vector<std::pair<Workload, int>> on_one_thread;
  for (const Workload& workload : workloads) on_one_thread.emplace_back(workload, 1);
  for (const size_t precision : {kExact, kFast}) {
    const std::vector<double> seconds = SecondsOf(on_one_thread, precision, comparison);
    std::vector<Cell> cells;
    for (const auto& [over, under] : ratios) cells.push_back(Ratio(seconds[over] / seconds[under]));
    report->Row(Concat(precision == kFast ? "FAST " : "EXACT ", name), cells);
  }
}

// A function of every element, on data in L1.
class Elements final : public Candidate {
 public:
  explicit Elements(Elementwise what) : what_(what) {}

  std::string_view name() const override { return "elements"; }
  bool Prepare(const Workload& workload, const Buffers& buffers, int /*threads*/) override {
    x_ = buffers.parameters(3);  // variances: what roots are taken of
    y_ = reinterpret_cast<float*>(buffers.y());
    count_ = workload.Elements();
    return true;
  }

 private:
  void Call() override { Compute(what_, x_, count_, y_); }

  const Elementwise what_;
  const float* x_ = nullptr;
  float* y_ = nullptr;
  int64_t count_ = 0;
};

}  // namespace

void MeasureThreads(KernelComparison* comparison, Report* report) {
  if (std::thread::hardware_concurrency() < 2) return report->NotMeasured("two threads/one", "one core");
  std::vector<Workload> workloads;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    // 8 MiB of x and y of 1024 elements.
    for (const Op op : {Op::kLayer, Op::kRms}) workloads.push_back(Rows(op, dtype, 4096 / SizeOf(dtype), 1024));
    for (const Op op : {Op::kBatchTraining, Op::kGroup}) {
      workloads.push_back(Images(op, dtype, Layout::kChannelsFirst));
      workloads.push_back(Images(op, dtype, Layout::kChannelsLast));
    }
  }
  report->Table("two threads against one, 6 to 12 MiB of x + y", {"EXACT", "FAST"});
  Worst worst[2];
  for (const Workload& workload : workloads) {
    std::vector<Cell> cells;
    for (const size_t precision : {kExact, kFast}) {
      const std::vector<double> seconds = SecondsOf({{workload, 1}, {workload, 2}}, precision, comparison);
      cells.push_back(Ratio(seconds[0] / seconds[1]));
      worst[precision].Take(seconds[0] / seconds[1], workload.Name());
    }
    report->Row(workload.Name(), cells);
  }
  report->Table("the same, worst shape (floor)", {"worst", "median"});
  worst[kExact].AddTo(report, "EXACT two threads/one", kThreadsFloor);
  worst[kFast].AddTo(report, "FAST two threads/one", kThreadsFloor);
}

void MeasureOperations(KernelComparison* comparison, Report* report) {
  report->Table("time of operations on the same rows, 1 thread", {"RMS/LN", "pRMS/RMS", "Scale/RMS"});
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t bytes : {kMaxL2Bytes, int64_t{16 << 20}}) {
      for (const int64_t d : {1024, 4096, 12288}) {
        const int64_t rows = bytes / (2 * d * SizeOf(dtype));
        std::vector<Workload> workloads;
        for (const Op op : {Op::kLayer, Op::kRms, Op::kPRms, Op::kScale}) workloads.push_back(Rows(op, dtype, rows, d));
        AddTimeRatios(Concat(Name(dtype), " ", rows, "x", d), workloads, {{1, 0}, {2, 1}, {3, 1}}, comparison, report);
      }
    }
  }
  report->Table("time of BatchNorm 8x1024@14 beside rows of 1024 of the same bytes, 1 thread",
                {"train/LN", "train/RMS", "infer/LN", "infer/RMS"});
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Layout layout : {Layout::kChannelsFirst, Layout::kChannelsLast}) {
      const Workload training = Images(Op::kBatchTraining, dtype, layout);
      const int64_t rows = training.Elements() / 1024;
      AddTimeRatios(Concat(Name(dtype), layout == Layout::kChannelsFirst ? " nchw" : " nhwc"),
                    {training, Images(Op::kBatchInference, dtype, layout), Rows(Op::kLayer, dtype, rows, 1024),
                     Rows(Op::kRms, dtype, rows, 1024)},
                    {{0, 2}, {0, 3}, {1, 2}, {1, 3}}, comparison, report);
    }
  }
}

void MeasureRoots(KernelComparison* comparison, Report* report) {
  const Workload workload = Rows(Op::kRms, DType::kF32, 1, 2048);
  Candidates candidates;
  for (const Elementwise what : {Elementwise::kDivide, Elementwise::kReciprocalRoot, Elementwise::kEstimatedRoot}) {
    candidates.push_back(std::make_unique<Elements>(what));
  }
  const std::vector<Timing> timings = comparison->Run(workload, 1, candidates);
  report->Table("a reciprocal root beside a division, f32 vectors in L1", {"ns/1024", "/division"});
  const char* const names[] = {"x / 3", "1 / sqrt(x)", "estimate and one Newton step"};
  for (size_t i = 0; i < timings.size(); ++i) {
    const double seconds = timings[i]->seconds;
    report->Row(names[i], {Amount(seconds * 1e9 * 1024 / static_cast<double>(workload.Elements())),
                           Ratio(seconds / timings[0]->seconds)});
  }
}

}  // namespace normd::bench
