#include "tests/bench/kernels/claims.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/bench/kernels/vector_loops.h"

namespace normd::bench {

namespace {

using Contestants = std::vector<std::unique_ptr<Contestant>>;

constexpr Precision kPrecisions[] = {Precision::kExact, Precision::kFast};
constexpr int64_t kLinearRow = 1024;
constexpr int64_t kLinearRowBytes = 2 * kLinearRow * 4;  // x and y

// Does a workload of its own, on threads of its own number, whatever the race is about.
class OwnWorkload final : public Contestant {
 public:
  OwnWorkload(std::unique_ptr<Contestant> contestant, Workload workload, int threads)
      : contestant_(std::move(contestant)), workload_(std::move(workload)), threads_(threads) {}

  std::string_view name() const override { return contestant_->name(); }
  bool Prepare(const Workload& /*workload*/, const Buffers& buffers, int /*threads*/) override {
    return contestant_->Prepare(workload_, buffers, threads_);
  }
  Batch Run(int64_t iterations) override { return contestant_->Run(iterations); }

 private:
  const std::unique_ptr<Contestant> contestant_;
  const Workload workload_;
  const int threads_;
};

std::string PrecisionName(Precision precision) { return precision == Precision::kFast ? "FAST" : "EXACT"; }

// Medians, by workload; all have the same bytes.
std::vector<double> RaceWorkloads(const std::vector<Workload>& workloads, Precision precision, Buffers* buffers,
                                  const RaceOptions& options) {
  Contestants contestants;
  for (const Workload& workload : workloads) {
    contestants.push_back(std::make_unique<OwnWorkload>(MakeNormd(precision), workload, 1));
  }
  buffers->Lay(workloads.front());
  std::vector<double> seconds;
  for (const Time& time : Race(workloads.front(), *buffers, 1, options, contestants)) {
    seconds.push_back(time.median_seconds);
  }
  return seconds;
}

Workload Rows(Op op, DType dtype, int64_t rows, int64_t d) {
  return {.op = op, .outer = rows, .row = d, .dtype = dtype};
}

Workload Images(Op op, DType dtype, Layout layout) {  // 1568 times 1024 elements
  return {.op = op, .layout = layout, .outer = 8, .channels = 1024, .side = 14, .dtype = dtype};
}

std::string SizeText(int64_t bytes) {
  if (bytes < 1 << 20) return std::to_string(bytes >> 10) + " KiB";
  return bytes < 1 << 30 ? std::to_string(bytes >> 20) + " MiB" : std::to_string(bytes >> 30) + " GiB";
}

void MeasureRowOperations(DType dtype, int64_t bytes, int64_t d, Buffers* buffers, const RaceOptions& options,
                          Report* report) {
  const int64_t rows = bytes / (2 * d * SizeOf(dtype));
  std::vector<Workload> workloads;
  for (const Op op : {Op::kLayer, Op::kRms, Op::kPRms, Op::kScale}) workloads.push_back(Rows(op, dtype, rows, d));
  for (const Precision precision : kPrecisions) {
    const std::vector<double> t = RaceWorkloads(workloads, precision, buffers, options);
    const std::string name = PrecisionName(precision) + " " + std::string(Name(dtype)) + " " + std::to_string(rows) +
                             "x" + std::to_string(d);
    report->Row({name, Fixed(t[0] * 1e6, 1), Fixed(t[1] / t[0], 2), Fixed(t[2] / t[1], 2), Fixed(t[3] / t[1], 2)});
    report->Add({.name = "RMS/LN time " + name, .value = t[1] / t[0], .unit = "x"});
    report->Add({.name = "pRMS/RMS time " + name, .value = t[2] / t[1], .unit = "x"});
    report->Add({.name = "Scale/RMS time " + name, .value = t[3] / t[1], .unit = "x"});
  }
}

void MeasureBatchOperations(DType dtype, Layout layout, Buffers* buffers, const RaceOptions& options, Report* report) {
  const Workload training = Images(Op::kBatchTraining, dtype, layout);
  const int64_t rows = training.Elements() / 1024;
  const std::vector<Workload> workloads = {training, Images(Op::kBatchInference, dtype, layout),
                                           Rows(Op::kLayer, dtype, rows, 1024), Rows(Op::kRms, dtype, rows, 1024)};
  for (const Precision precision : kPrecisions) {
    const std::vector<double> t = RaceWorkloads(workloads, precision, buffers, options);
    const std::string name = PrecisionName(precision) + " " + std::string(Name(dtype)) +
                             (layout == Layout::kChannelsFirst ? " nchw" : " nhwc");
    std::vector<std::string> cells = {name};
    for (size_t batch = 0; batch < 2; ++batch) {
      for (size_t row = 2; row < 4; ++row) {
        cells.push_back(Fixed(t[batch] / t[row], 2));
        report->Add(
            {.name = std::string(batch == 0 ? "BN-train" : "BN-infer") + (row == 2 ? "/LN" : "/RMS") + " time " + name,
             .value = t[batch] / t[row],
             .unit = "x"});
      }
    }
    report->Row(cells);
  }
}

// Calls a function on L1-resident data.
class Elements final : public Contestant {
 public:
  explicit Elements(Elementwise what) : what_(what) {}

  std::string_view name() const override { return "elements"; }
  bool Prepare(const Workload& workload, const Buffers& buffers, int /*threads*/) override {
    x_ = buffers.parameters(3);  // variances: what roots are taken of
    y_ = reinterpret_cast<float*>(buffers.y());
    count_ = workload.Elements();
    return true;
  }
  Batch Run(int64_t iterations) override {
    return TimeCalls(iterations, [this] { Compute(what_, x_, count_, y_); });
  }

 private:
  const Elementwise what_;
  const float* x_ = nullptr;
  float* y_ = nullptr;
  int64_t count_ = 0;
};

}  // namespace

int64_t ClaimBytes(int64_t largest_bytes) { return std::max<int64_t>(largest_bytes, 32 << 20); }

void MeasureLinearity(int64_t largest_bytes, Buffers* buffers, const RaceOptions& options, Report* report) {
  const int machine = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  Contestants contestants;
  contestants.push_back(MakeNormd(Precision::kExact));
  contestants.push_back(MakeNormd(Precision::kFast));
  contestants.push_back(MakeCopy(false));
  contestants.push_back(MakeCopy(true));
  std::vector<std::string> columns = {"x + y"};
  for (const auto& contestant : contestants) columns.emplace_back(contestant->name());
  report->Table("ns/KiB of x + y, RMSNorm over rows of 1024 f32, " + std::to_string(machine) + " threads", columns);
  std::vector<double> least(contestants.size()), most(contestants.size());
  // 4 times as much each, and the largest.
  for (int64_t bytes = kLinearRowBytes; bytes <= largest_bytes;) {
    Workload workload = Rows(Op::kRms, DType::kF32, bytes / kLinearRowBytes, kLinearRow);
    buffers->Lay(workload);
    const std::vector<Time> times = Race(workload, *buffers, machine, options, contestants);
    std::vector<std::string> cells = {SizeText(bytes)};
    for (size_t i = 0; i < times.size(); ++i) {
      const double cost = times[i].median_seconds * 1e9 / (static_cast<double>(bytes) / 1024);
      cells.push_back(Fixed(cost, 1));
      least[i] = least[i] > 0 ? std::min(least[i], cost) : cost;
      most[i] = std::max(most[i], cost);
      report->Add({.name = "linear " + SizeText(bytes) + " " + std::string(contestants[i]->name()),
                   .value = cost,
                   .unit = "ns/KiB"});
    }
    report->Row(cells);
    bytes = bytes < largest_bytes ? std::min(4 * bytes, largest_bytes) : largest_bytes + 1;
  }
  std::vector<std::string> cells = {"dearest/cheapest"};
  for (size_t i = 0; i < least.size(); ++i) cells.push_back(Fixed(most[i] / least[i], 1));
  report->Row(cells);
}

void MeasureThreads(Buffers* buffers, const RaceOptions& options, Report* report) {
  constexpr double kFloor = 1.8;
  if (std::thread::hardware_concurrency() < 2) return report->NotMeasured("two threads/one", "one core");
  std::vector<Workload> workloads;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const int64_t rows = 4096 / SizeOf(dtype);  // 8 MiB of x and y of 1024 elements
    workloads.push_back(Rows(Op::kLayer, dtype, rows, 1024));
    workloads.push_back(Rows(Op::kRms, dtype, rows, 1024));
    workloads.push_back(Images(Op::kBatchTraining, dtype, Layout::kChannelsFirst));
    workloads.push_back(Images(Op::kBatchTraining, dtype, Layout::kChannelsLast));
    workloads.push_back(Images(Op::kGroup, dtype, Layout::kChannelsFirst));
    workloads.push_back(Images(Op::kGroup, dtype, Layout::kChannelsLast));
  }
  report->Table("two threads against one, 6 to 12 MiB of x + y", {"", "EXACT", "FAST"});
  std::pair<double, std::string> worst[2] = {{1e9, ""}, {1e9, ""}};
  for (const Workload& workload : workloads) {
    buffers->Lay(workload);
    std::vector<std::string> cells = {workload.Name()};
    for (const Precision precision : kPrecisions) {
      Contestants contestants;
      for (const int threads : {1, 2}) {
        contestants.push_back(std::make_unique<OwnWorkload>(MakeNormd(precision), workload, threads));
      }
      const std::vector<Time> times = Race(workload, *buffers, 2, options, contestants);
      const double ratio = times[0].median_seconds / times[1].median_seconds;
      cells.push_back(Fixed(ratio, 2));
      auto& of_precision = worst[precision == Precision::kFast ? 1 : 0];
      of_precision = std::min(of_precision, {ratio, workload.Name()});
    }
    report->Row(cells);
  }
  for (const Precision precision : kPrecisions) {
    const auto& [ratio, name] = worst[precision == Precision::kFast ? 1 : 0];
    report->Add({.name = PrecisionName(precision) + " two threads/one (" + name + ")",
                 .value = ratio,
                 .unit = "x",
                 .floor = kFloor});
  }
}

void MeasureOperations(Buffers* buffers, const RaceOptions& options, Report* report) {
  report->Table("time of operations on the same rows, 1 thread", {"", "LN us", "RMS/LN", "pRMS/RMS", "Scale/RMS"});
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t bytes : {int64_t{kMaxL2Bytes}, int64_t{16 << 20}}) {
      for (const int64_t d : {1024, 4096, 12288}) MeasureRowOperations(dtype, bytes, d, buffers, options, report);
    }
  }
  report->Table("time of BatchNorm 8x1024@14 beside rows of 1024 of the same bytes, 1 thread",
                {"", "train/LN", "train/RMS", "infer/LN", "infer/RMS"});
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Layout layout : {Layout::kChannelsFirst, Layout::kChannelsLast}) {
      MeasureBatchOperations(dtype, layout, buffers, options, report);
    }
  }
}

void MeasureRoots(Buffers* buffers, const RaceOptions& options, Report* report) {
  const Workload workload = Rows(Op::kRms, DType::kF32, 1, 2048);
  buffers->Lay(workload);
  Contestants contestants;
  for (const Elementwise what : {Elementwise::kDivide, Elementwise::kReciprocalRoot, Elementwise::kEstimatedRoot}) {
    contestants.push_back(std::make_unique<Elements>(what));
  }
  const std::vector<Time> times = Race(workload, *buffers, 1, options, contestants);
  report->Table("a reciprocal root beside a division, f32 vectors in L1", {"", "ns/1024", "/division"});
  const char* const names[] = {"x / 3", "1 / sqrt(x)", "estimate and one Newton step"};
  for (size_t i = 0; i < times.size(); ++i) {
    const double seconds = times[i].median_seconds;
    const double ratio = seconds / times[0].median_seconds;
    report->Row({names[i], Fixed(seconds * 1e9 * 1024 / static_cast<double>(workload.Elements()), 0), Fixed(ratio, 2)});
    report->Add({.name = std::string(names[i]) + "/division time", .value = ratio, .unit = "x"});
  }
}

}  // namespace normd::bench
