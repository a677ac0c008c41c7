#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "tests/bench/comparison.h"
#include "tests/bench/datapath/exchange.h"
#include "tests/bench/datapath/sections.h"
#include "tests/bench/datapath/server_process.h"

namespace normd::bench {

namespace {

constexpr double kCeiling = 2;
constexpr int kPausesBeforeSilence = 4;

absl::StatusOr<double> MicrosAfter(const Target& target, absl::Duration pause) {
  absl::SleepFor(pause);
  NORMD_ASSIGN_OR_RETURN(const LoopResult one, RunClosedLoop(target, 1, absl::ZeroDuration()));
  return one.Micros();
}

absl::Status MeasureOn(const Flags& flags, const std::string& transport, Report* report) {
  const absl::Duration pause = flags.smoke ? absl::Milliseconds(5) : absl::Milliseconds(50);
  const absl::Duration silence = flags.smoke ? absl::Milliseconds(5) : absl::Seconds(5);
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<ServerProcess> server, ServerProcess::Start("normd", transport));
  NORMD_ASSIGN_OR_RETURN(const Rows rows, MakeRows(4 << 10));
  Target target = MakeTarget("normd", false, rows);
  target.channels = NewChannels(server->address(), 1);
  NORMD_RETURN_IF_ERROR(RunClosedLoop(target, 1, pause).status());  // connects, and warms up
  std::vector<double> after_pause, after_silence;
  for (int i = 0; i < flags.Pick(5, 3, 1); ++i) {  // one that the machine sleeps through is no median
    for (int j = 0; j < kPausesBeforeSilence; ++j) {
      NORMD_ASSIGN_OR_RETURN(const double micros, MicrosAfter(target, pause));
      after_pause.push_back(micros);
    }
    NORMD_ASSIGN_OR_RETURN(const double micros, MicrosAfter(target, silence));
    after_silence.push_back(micros);
  }
  const double base = Median(after_pause);
  const double after = Median(after_silence);
  report->Row("idle " + transport, {Amount(base), Amount(after), Ratio(after / base, {}, kCeiling)});
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureIdle(const Flags& flags, Report* report) {
  report->Table("a request of 4 KiB, after a pause of 50 ms and after a silence of 5 s; medians (at most)",
                {"pause us", "silence us", "ratio"});
  for (const std::string transport : {"tcp", "unix"}) {
    if (!flags.Chosen("idle " + transport) || (flags.quick && transport == "unix")) continue;
    NORMD_RETURN_IF_ERROR(WithContext(MeasureOn(flags, transport, report), "idle " + transport));
  }
  return absl::OkStatus();
}

}  // namespace normd::bench
