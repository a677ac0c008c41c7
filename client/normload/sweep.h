// Measures latency over load: first the closed loop's capacity, then open loops at percentages of it. Each repeat is
// one round over all loads, so that a drift of the machine affects every load alike. The knee is the highest load up to
// which, from the lowest load on and without a gap, every p99 is within the SLO.
#ifndef NORMD_CLIENT_NORMLOAD_SWEEP_H_
#define NORMD_CLIENT_NORMLOAD_SWEEP_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/normload/background_cpu.h"
#include "client/normload/load.h"
#include "client/normload/options.h"
#include "client/normload/summary.h"

namespace normd::client {

// One load: medians and sums over its repeats.
struct SweepPoint {
  double percent = 0;  // of capacity
  double rate = 0;     // calls due in a second
  std::vector<RunSummary> runs;
  double p50_ns = 0, p99_ns = 0, p999_ns = 0, lateness_p99_ns = 0;      // medians; 0 if no call was answered
  double answered_per_second = 0, good_per_second = 0, good_share = 0;  // medians
  int64_t rejected = 0, failed = 0, unsent = 0;  // sums; rejected calls are also counted as failed
  std::optional<double> background;              // the largest
  bool noisy = false;
  bool interrupted = false;  // a signal ended its last run early
  bool under_slo = false;
};

// REQUIRES: at least one run.
SweepPoint MakePoint(double percent, double rate, std::vector<RunSummary> runs);

// The index of the knee; nullopt if even the lowest load breaks the SLO. REQUIRES: the loads of `points` rise.
std::optional<size_t> FindKnee(const std::vector<SweepPoint>& points);

struct SweepResult {
  std::vector<RunSummary> capacity_runs;
  double capacity = 0;  // calls a second, the median
  std::vector<SweepPoint> points;
  std::optional<size_t> knee;
  std::string cut_short;  // the reason why the sweep ended early, or empty
};

// Calls `progress` before each measurement. Ends within max_time, one deadline and about two seconds.
SweepResult RunSweep(const NormloadOptions& options, const LoadTarget& target, BackgroundCpu& background,
                     const std::function<void(absl::string_view)>& progress);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMLOAD_SWEEP_H_
