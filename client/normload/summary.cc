#include "client/normload/summary.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace normd::client {
namespace {

CallSummary SummarizeCalls(std::string name, const EntryResult& result, double seconds) {
  CallSummary out;
  out.name = std::move(name);
  out.kernel = result.kernel;
  out.calls = result.latency.count();
  out.good = result.good;
  out.failed = result.failed();
  out.errors = result.errors;
  if (const auto it = out.errors.find("RESOURCE_EXHAUSTED"); it != out.errors.end()) out.rejected = it->second;
  out.first_error = result.first_error;
  const auto rate = [seconds](int64_t count) { return static_cast<double>(count) / seconds; };
  out.calls_per_second = rate(out.calls);
  out.good_per_second = rate(out.good);
  out.tensors_per_second = rate(result.items);
  out.rows_per_second = rate(result.rows);
  out.sent_mb_per_second = rate(result.bytes_sent) / 1e6;
  out.received_mb_per_second = rate(result.bytes_received) / 1e6;
  out.latency = QuantilesOf(result.latency);
  out.latency_curve = CurveOf(result.latency);
  return out;
}

}  // namespace

Quantiles QuantilesOf(const Histogram& histogram) {
  return {histogram.Quantile(0.5),   histogram.Quantile(0.9), histogram.Quantile(0.99),
          histogram.Quantile(0.999), histogram.max(),         histogram.mean()};
}

std::vector<std::pair<double, double>> CurveOf(const Histogram& histogram) {
  constexpr int kPointsOfNine = 10;
  constexpr int kMostNines = 6;
  std::vector<std::pair<double, double>> curve;
  const double last = std::log10(static_cast<double>(std::max<int64_t>(histogram.count(), 1)));
  for (int i = 0; i <= kMostNines * kPointsOfNine && histogram.count() > 0; ++i) {
    const double nines = static_cast<double>(i) / kPointsOfNine;
    if (nines > last) break;
    curve.emplace_back(nines, static_cast<double>(histogram.Quantile(1 - std::pow(10.0, -nines))));
  }
  return curve;
}

double RunSummary::good_share() const {
  return offered == 0 ? 1 : static_cast<double>(total.good) / static_cast<double>(offered);
}

RunSummary Summarize(const LoadOptions& options, const LoadResult& result, std::optional<double> background) {
  RunSummary out;
  out.seconds = absl::ToDoubleSeconds(result.elapsed);
  EntryResult all;
  for (size_t i = 0; i < result.entries.size(); ++i) {
    all.Merge(result.entries[i]);
    out.entries.push_back(SummarizeCalls(options.entries[i].name(), result.entries[i], out.seconds));
  }
  out.total = SummarizeCalls("total", all, out.seconds);
  out.unsent = result.unsent;
  out.waited = result.waited;
  out.cut_off = result.cut_off;
  out.interrupted = result.interrupted;
  out.offered = out.total.calls + out.total.failed + out.unsent + out.cut_off;
  out.lateness = QuantilesOf(result.lateness);
  out.background = background;
  return out;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

const RunSummary& MedianRun(const std::vector<RunSummary>& runs) {
  std::vector<const RunSummary*> sorted;
  sorted.reserve(runs.size());
  for (const RunSummary& run : runs) sorted.push_back(&run);
  std::sort(sorted.begin(), sorted.end(), [](const RunSummary* a, const RunSummary* b) {
    return a->total.calls_per_second < b->total.calls_per_second;
  });
  return *sorted[(sorted.size() - 1) / 2];
}

}  // namespace normd::client
