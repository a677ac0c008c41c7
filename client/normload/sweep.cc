#include "client/normload/sweep.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/normload/interrupt.h"

namespace normd::client {
namespace {

constexpr double kWithinSlo = 0.99;
constexpr char kInterrupted[] = "a signal came";
constexpr double kLeastRate = 0.01;

double MedianOf(const std::vector<RunSummary>& runs, const std::function<double(const RunSummary&)>& value) {
  std::vector<double> values;
  values.reserve(runs.size());
  for (const RunSummary& run : runs) values.push_back(value(run));
  return Median(std::move(values));
}

// The state of a sweep while it runs.
class Sweep {
 public:
  Sweep(const NormloadOptions& options, const LoadTarget& target, BackgroundCpu& background,
        const std::function<void(absl::string_view)>& progress)
      : options_(options), target_(target), background_(background), progress_(progress) {}

  SweepResult Run() {
    for (int repeat = 0; repeat < options_.repeats && Goes(); ++repeat) {
      LoadOptions load = options_.load;
      load.seed += static_cast<uint64_t>(repeat);
      Keep(Measure(load, "capacity, closed loop"), result_.capacity_runs);
    }
    result_.capacity =
        MedianOf(result_.capacity_runs, [](const RunSummary& run) { return run.total.calls_per_second; });
    std::vector<std::vector<RunSummary>> runs(options_.loads.size());
    for (int round = 0; round < options_.repeats; ++round) {
      for (size_t i = 0; i < runs.size() && Goes(); ++i) Keep(MeasureLoad(i, round), runs[i]);
    }
    for (size_t i = 0; i < runs.size(); ++i) {
      if (runs[i].empty()) continue;
      result_.points.push_back(MakePoint(options_.loads[i], Rate(i), std::move(runs[i])));
    }
    if (InterruptedAt().has_value()) result_.cut_short = kInterrupted;
    result_.knee = FindKnee(result_.points);
    return std::move(result_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  double Rate(size_t i) const { return std::max(kLeastRate, result_.capacity * options_.loads[i] / 100); }

  // True if another measurement should be made.
  bool Goes() {
    if (InterruptedAt().has_value() && result_.cut_short.empty()) result_.cut_short = kInterrupted;
    if (!result_.cut_short.empty()) return false;
    const absl::Duration spent = absl::FromChrono(Clock::now() - start_);
    if (spent + options_.load.warmup + options_.load.duration > options_.max_time) {
      result_.cut_short = absl::StrCat("--max-time ", absl::FormatDuration(options_.max_time), " is over");
      return false;
    }
    return true;
  }

  RunSummary MeasureLoad(size_t i, int round) {
    LoadOptions load = options_.load;
    load.rate = Rate(i);
    load.seed += 1000 * static_cast<uint64_t>(round) + i;  // each repeat has arrivals of its own
    return Measure(load, absl::StrFormat("%g %% of capacity, %.1f calls/s, round %d of %d", options_.loads[i],
                                         *load.rate, round + 1, options_.repeats));
  }

  RunSummary Measure(const LoadOptions& load, const std::string& what) {
    progress_(what);
    // Starts a new lap: CPU used before now does not belong to this run.
    static_cast<void>(background_.Lap());
    const LoadResult result = RunLoad(load, target_);
    RunSummary summary = Summarize(load, result, background_.Lap());
    if (summary.total.calls == 0 && summary.offered > 0 && !summary.interrupted) {
      result_.cut_short = absl::StrCat("no call was answered at ", what, ": ", summary.total.first_error);
    }
    return summary;
  }

  static void Keep(RunSummary run, std::vector<RunSummary>& runs) {
    if (run.says_something()) runs.push_back(std::move(run));
  }

  const NormloadOptions& options_;
  const LoadTarget& target_;
  BackgroundCpu& background_;
  const std::function<void(absl::string_view)>& progress_;
  const Clock::time_point start_ = Clock::now();
  SweepResult result_;
};

}  // namespace

SweepPoint MakePoint(double percent, double rate, std::vector<RunSummary> runs) {
  SweepPoint out;
  out.percent = percent;
  out.rate = rate;
  out.p50_ns = MedianOf(runs, [](const RunSummary& run) { return static_cast<double>(run.total.latency.p50); });
  out.p99_ns = MedianOf(runs, [](const RunSummary& run) { return static_cast<double>(run.total.latency.p99); });
  out.p999_ns = MedianOf(runs, [](const RunSummary& run) { return static_cast<double>(run.total.latency.p999); });
  out.lateness_p99_ns = MedianOf(runs, [](const RunSummary& run) { return static_cast<double>(run.lateness.p99); });
  out.answered_per_second = MedianOf(runs, [](const RunSummary& run) { return run.total.calls_per_second; });
  out.good_per_second = MedianOf(runs, [](const RunSummary& run) { return run.total.good_per_second; });
  out.good_share = MedianOf(runs, [](const RunSummary& run) { return run.good_share(); });
  for (const RunSummary& run : runs) {
    out.rejected += run.total.rejected;
    out.failed += run.total.failed;
    out.unsent += run.unsent;
    out.noisy = out.noisy || run.noisy();
    out.interrupted = out.interrupted || run.interrupted;
    if (run.background.has_value()) out.background = std::max(out.background.value_or(0), *run.background);
  }
  out.under_slo = out.good_share >= kWithinSlo;
  out.runs = std::move(runs);
  return out;
}

std::optional<size_t> FindKnee(const std::vector<SweepPoint>& points) {
  std::optional<size_t> knee;
  for (size_t i = 0; i < points.size() && points[i].under_slo; ++i) knee = i;
  return knee;
}

SweepResult RunSweep(const NormloadOptions& options, const LoadTarget& target, BackgroundCpu& background,
                     const std::function<void(absl::string_view)>& progress) {
  return Sweep(options, target, background, progress).Run();
}

}  // namespace normd::client
