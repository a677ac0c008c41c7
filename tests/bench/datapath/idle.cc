#include "tests/bench/datapath/idle.h"

#include <memory>

#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "tests/bench/datapath/driver.h"
#include "tests/bench/datapath/exchange.h"
#include "tests/bench/datapath/server_process.h"

namespace normd::bench {

namespace {

constexpr double kCeiling = 2;

struct Micros {
  std::vector<double> after_pause, after_silence;
};

// The microseconds of one request after `pause`.
absl::StatusOr<double> TimeAfter(const Target& target, absl::Duration pause) {
  absl::SleepFor(pause);
  NORMD_ASSIGN_OR_RETURN(const absl::Duration time, TimeOfOne(target, absl::ZeroDuration()));
  return absl::ToDoubleMicroseconds(time);
}

absl::StatusOr<Micros> Measure(const IdleOptions& options, const Target& target) {
  NORMD_RETURN_IF_ERROR(TimeOfOne(target, options.pause).status());  // connects, and warms up
  Micros micros;
  for (int i = 0; i < options.silences; ++i) {
    for (int j = 0; j < options.pauses; ++j) {
      NORMD_ASSIGN_OR_RETURN(const double pause, TimeAfter(target, options.pause));
      micros.after_pause.push_back(pause);
    }
    NORMD_ASSIGN_OR_RETURN(const double silence, TimeAfter(target, options.silence));
    micros.after_silence.push_back(silence);
  }
  return micros;
}

absl::Status MeasureOn(const IdleOptions& options, const std::string& transport, Report* report) {
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<ListenPlace> place, ListenPlace::Make(transport));
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<ServerProcess> server,
                         ServerProcess::Start("normd", place->Address("normd")));
  NORMD_ASSIGN_OR_RETURN(const Rows rows, MakeRows(4 << 10));
  Target target = MakeTarget("normd", false, rows);
  target.channels = NewChannels(server->address(), 1);
  NORMD_ASSIGN_OR_RETURN(const Micros micros, Measure(options, target));
  const double pause = Median(micros.after_pause);
  const double silence = Median(micros.after_silence);
  const std::string name = "idle " + transport;
  report->Add({name + " after a pause", pause, "us"});
  report->Add({name + " after a silence", silence, "us"});
  report->Add({name, silence / pause, "after a silence / after a pause", {}, kCeiling});
  report->Row({name, Short(pause), Short(silence), Fixed(silence / pause, 2), Fixed(kCeiling, 2)});
  return absl::OkStatus();
}

}  // namespace

absl::Duration EstimateIdle(const IdleOptions& options) {
  return (options.silence + options.pause * options.pauses) * options.silences *
         static_cast<double>(options.transports.size());
}

absl::Status MeasureIdle(const IdleOptions& options, Report* report) {
  report->Table("a request of 4 KiB, in us, after a pause of " + absl::FormatDuration(options.pause) +
                    " and after a silence of " + absl::FormatDuration(options.silence) + "; medians",
                {"", "pause", "silence", "ratio", "at most"});
  for (const std::string& transport : options.transports) {
    NORMD_RETURN_IF_ERROR(WithContext(MeasureOn(options, transport, report), "idle " + transport));
  }
  return absl::OkStatus();
}

}  // namespace normd::bench
