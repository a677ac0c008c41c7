#include "tests/bench/datapath/overload.h"

#include <algorithm>
#include <memory>
#include <string>

#include "kernels/base/status_macros.h"
#include "tests/bench/datapath/driver.h"
#include "tests/bench/datapath/exchange.h"
#include "tests/bench/datapath/open_loop.h"
#include "tests/bench/datapath/server_process.h"

namespace normd::bench {

namespace {

constexpr double kGoodputFloor = 0.9;
// What --max_queue_age is by default: how long a request may wait in the server before it is refused.
constexpr absl::Duration kQueueAgeLimit = absl::Milliseconds(500);

// The best of closed loops of several widths, in requests/s.
absl::StatusOr<double> MeasurePeak(const OverloadOptions& options, const Target& target) {
  double peak = 0;
  for (const int in_flight : {4, 16, options.in_flight / 4}) {
    NORMD_RETURN_IF_ERROR(RunClosedLoop(target, in_flight, options.closed / 10).status());  // warm-up
    NORMD_ASSIGN_OR_RETURN(const LoopResult result, RunClosedLoop(target, in_flight, options.closed));
    peak = std::max(peak, result.PerSecond());
  }
  return peak;
}

void Add(const OverloadOptions& options, double peak, const OpenLoopResult& result, Report* report) {
  const double seconds = absl::ToDoubleSeconds(options.open);
  const double goodput = static_cast<double>(result.answered) / seconds;
  const double sent = static_cast<double>(result.sent) / seconds;
  const double p99 = result.millis.empty() ? 0 : Percentile(result.millis, 0.99);
  const double p99_from_due = result.from_due.empty() ? 0 : Percentile(result.from_due, 0.99);
  report->Add({"overload peak", peak, "requests/s"});
  report->Add({"overload sent", sent, "requests/s"});
  report->Add({"overload refused", static_cast<double>(result.refused) / seconds, "requests/s"});
  report->Add({"overload p99", p99, "ms"});
  report->Add({"overload p99 from due", p99_from_due, "ms"});
  report->Add({"overload goodput", goodput / peak, "of the peak", kGoodputFloor, {}});
  report->Row({"overload", Short(peak), Short(peak * options.excess), Short(sent),
               Short(static_cast<double>(result.refused) / seconds), Short(goodput), Fixed(goodput / peak, 2),
               Fixed(kGoodputFloor, 2), Short(p99), Short(absl::ToDoubleMilliseconds(kQueueAgeLimit)),
               Short(p99_from_due)});
}

}  // namespace

absl::Status MeasureOverload(const OverloadOptions& options, Report* report) {
  report->Table(
      "requests/s of 64 KiB beyond the peak, open loop; times of those answered in ms: p99 from sending beside what "
      "the "
      "server's queue may add, p99 from when they were due",
      {"", "peak", "asked", "sent", "refused", "answered", "ratio", "floor", "p99", "queue age", "from due"});
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<ServerProcess> server,
                         ServerProcess::Start("normd_default", "127.0.0.1:0"));
  NORMD_ASSIGN_OR_RETURN(const Rows rows, MakeRows(options.payload));
  Target target = MakeTarget("normd", false, rows);
  target.channels = NewChannels(server->address(), options.connections);
  NORMD_ASSIGN_OR_RETURN(const double peak, MeasurePeak(options, target));
  const OpenLoopOptions open = {
      .per_second = peak * options.excess, .duration = options.open, .max_in_flight = options.in_flight};
  NORMD_ASSIGN_OR_RETURN(const OpenLoopResult result, RunOpenLoop(target, open));
  Add(options, peak, result, report);
  return absl::OkStatus();
}

}  // namespace normd::bench
