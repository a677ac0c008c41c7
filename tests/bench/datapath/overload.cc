#include <algorithm>
#include <memory>

#include "kernels/base/status_macros.h"
#include "tests/bench/datapath/exchange.h"
#include "tests/bench/datapath/sections.h"
#include "tests/bench/datapath/server_process.h"

namespace normd::bench {

namespace {

constexpr double kGoodputFloor = 0.9;
constexpr double kExcess = 1.5;  // what the open loop asks, as a share of the peak
constexpr int64_t kPayload = 64 << 10;
// Several, each with as many streams as a server lets a connection have: what waits, waits in the server.
constexpr int kConnections = 16;
constexpr int kInFlight = 256;

// The best of closed loops of several widths, in requests/s.
absl::StatusOr<double> MeasurePeak(absl::Duration duration, const Target& target) {
  double peak = 0;
  for (const int in_flight : {4, 16, kInFlight / 4}) {
    NORMD_RETURN_IF_ERROR(RunClosedLoop(target, in_flight, duration / 10).status());  // warm-up
    NORMD_ASSIGN_OR_RETURN(const LoopResult result, RunClosedLoop(target, in_flight, duration));
    peak = std::max(peak, result.PerSecond());
  }
  return peak;
}

}  // namespace

absl::Status MeasureOverload(const Flags& flags, Report* report) {
  if (!flags.Chosen("overload")) return absl::OkStatus();
  report->Table("requests/s of 64 KiB over TCP beyond the peak, open loop (floor)",
                {"peak", "asked", "sent", "refused", "answered", "of peak"});
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<ServerProcess> server, ServerProcess::Start("normd_default", "tcp"));
  NORMD_ASSIGN_OR_RETURN(const Rows rows, MakeRows(kPayload));
  Target target = MakeTarget("normd", false, rows);
  target.channels = NewChannels(server->address(), kConnections);
  NORMD_ASSIGN_OR_RETURN(const double peak,
                         MeasurePeak(flags.smoke ? absl::Milliseconds(20) : absl::Seconds(1), target));
  const absl::Duration open = flags.Pick(absl::Seconds(2), absl::Seconds(1), absl::Milliseconds(20));
  NORMD_ASSIGN_OR_RETURN(
      const OpenLoopResult result,
      RunOpenLoop(target, {.per_second = peak * kExcess, .duration = open, .max_in_flight = kInFlight}));
  const auto per_second = [&](int64_t count) { return static_cast<double>(count) / absl::ToDoubleSeconds(open); };
  report->Row("overload", {Amount(peak), Amount(peak * kExcess), Amount(per_second(result.sent)),
                           Amount(per_second(result.refused)), Amount(per_second(result.answered)),
                           Ratio(per_second(result.answered) / peak, kGoodputFloor)});
  return absl::OkStatus();
}

}  // namespace normd::bench
