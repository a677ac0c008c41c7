#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "tests/bench/comparison.h"
#include "tests/bench/datapath/driver.h"
#include "tests/bench/datapath/server_process.h"
#include "tests/bench/machine.h"
#include "tests/bench/transport/messages.h"
#include "tests/bench/transport/sections.h"
#include "tests/bench/transport/versus.h"

namespace normd::bench {
namespace {

constexpr int kStreams = 16;
constexpr double kMostMilliseconds = 5;  // p99
constexpr absl::Duration kPause = absl::Milliseconds(2);

// The times of small calls, one at a time on a connection of their own, in milliseconds.
absl::StatusOr<std::vector<double>> CallFor(const Target& target, absl::Duration duration) {
  std::vector<double> times;
  for (const absl::Time end = SteadyNow() + duration; times.empty() || SteadyNow() < end; absl::SleepFor(kPause)) {
    NORMD_ASSIGN_OR_RETURN(const LoopResult one, RunClosedLoop(target, 1, absl::ZeroDuration()));
    times.push_back(one.Micros() / 1000);
  }
  return times;
}

absl::Status MeasureServer(size_t transport, const Flags& flags, Report* report) {
  const std::string name = kTransports[transport];
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<ServerProcess> server, ServerProcess::Start("echo_" + name, "tcp"));
  Target small = TargetOf("echo", /*stream=*/false, 4 << 10);
  small.channels = NewChannels(server->address(), 1);
  Target large = TargetOf("echo", /*stream=*/true, flags.smoke ? 1 << 20 : 16 << 20);
  large.channels = NewChannels(server->address(), 1);
  NORMD_RETURN_IF_ERROR(CallFor(small, absl::ZeroDuration()).status());  // connects
  const absl::Duration duration = flags.Pick(absl::Seconds(10), absl::Seconds(4), absl::Milliseconds(20));
  absl::StatusOr<LoopResult> streams;
  std::thread load([&] { streams = RunClosedLoop(large, kStreams, duration); });
  absl::SleepFor(duration / 8);  // until all streams are under way
  const absl::StatusOr<std::vector<double>> times = CallFor(small, duration * 3 / 4);
  load.join();
  NORMD_RETURN_IF_ERROR(streams.status());
  NORMD_RETURN_IF_ERROR(times.status());
  const std::optional<double> most = transport == kNative ? std::optional(kMostMilliseconds) : std::nullopt;
  report->Row("small beside large " + name, {Amount(streams->PerSecond()), Amount(static_cast<double>(times->size())),
                                             Ratio(Median(*times)), Ratio(Percentile(*times, 0.99), {}, most)});
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureSmallBesideLarge(const Flags& flags, Report* report) {
  if (!flags.Chosen("small beside large")) return absl::OkStatus();
  report->Table(
      Concat("a call of 4 KiB beside ", kStreams,
             " streams of 16 MiB, on the one queue of the echo: messages/s of the streams, calls, their times"),
      {"streams/s", "calls", "median ms", "p99 ms"});
  for (const size_t transport : {kGrpc, kNative}) {
    NORMD_RETURN_IF_ERROR(WithContext(MeasureServer(transport, flags, report), "small beside large"));
  }
  return absl::OkStatus();
}

}  // namespace normd::bench
