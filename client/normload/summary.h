// The numbers of a LoadResult that reports print. Plain values.
#ifndef NORMD_CLIENT_NORMLOAD_SUMMARY_H_
#define NORMD_CLIENT_NORMLOAD_SUMMARY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/normload/background_cpu.h"
#include "client/normload/load.h"

namespace normd::client {

// In nanoseconds. All 0 if nothing was measured.
struct Quantiles {
  int64_t p50 = 0, p90 = 0, p99 = 0, p999 = 0, max = 0;
  double mean = 0;
};
Quantiles QuantilesOf(const Histogram& histogram);
// Ten points for each nine; beyond the quantile that 1 call in all is above, there is nothing to tell.
std::vector<std::pair<double, double>> CurveOf(const Histogram& histogram);

// The calls of one entry, or of all entries.
struct CallSummary {
  std::string name;
  std::string kernel;    // as one reply named it
  int64_t calls = 0;     // answered with OK
  int64_t good = 0;      // answered within the SLO
  int64_t rejected = 0;  // RESOURCE_EXHAUSTED: the server had no room
  int64_t failed = 0;    // including rejected ones
  std::map<std::string, int64_t> errors;
  std::string first_error;
  double calls_per_second = 0, good_per_second = 0, tensors_per_second = 0, rows_per_second = 0;
  // In 10^6 tensor bytes of successful calls.
  double sent_mb_per_second = 0, received_mb_per_second = 0;
  Quantiles latency;  // of successful calls
  // The same latency as a curve, for charts: by `nines`, -log10(1 - quantile), from 0 to what the number of calls
  // tells.
  std::vector<std::pair<double, double>> latency_curve;
};

struct RunSummary {
  CallSummary total;
  std::vector<CallSummary> entries;
  double seconds = 0;
  int64_t offered = 0;  // calls that were due: answered, failed and unsent ones
  int64_t unsent = 0, waited = 0;
  int64_t cut_off = 0;       // calls that a signal left without an answer
  bool interrupted = false;  // a signal ended the run early
  Quantiles lateness;        // of the generator; open loop only
  // The share of the machine's CPU that other processes used during the run.
  std::optional<double> background;

  // False for a run that a signal ended before its first call was over.
  bool says_something() const { return !interrupted || total.calls + total.failed > 0; }
  bool noisy() const { return background.value_or(0) > kNoisyShare; }
  // The share of due calls that were answered within the SLO. If it is at least 0.99, their p99 is within the SLO, with
  // failed and unsent calls counted as infinitely slow.
  double good_share() const;
};

RunSummary Summarize(const LoadOptions& options, const LoadResult& result, std::optional<double> background);

// The middle value; the mean of the two middle values for an even number of values; 0 for none.
double Median(std::vector<double> values);
// The run with the middle throughput. REQUIRES: at least one run.
const RunSummary& MedianRun(const std::vector<RunSummary>& runs);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMLOAD_SUMMARY_H_
