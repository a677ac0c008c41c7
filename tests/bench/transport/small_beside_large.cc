#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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
#include "tests/bench/transport/servers.h"
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
  NORMD_RETURN_IF_ERROR(CallFor(small, absl::ZeroDuration()).status());  // connects
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<ServerProcess> load,
                         ServerProcess::Start(Concat("load_", flags.smoke ? 1 : 16, "_", server->address()), "tcp"));
  NORMD_ASSIGN_OR_RETURN(const absl::Duration cpu_before, server->CpuTime());
  const absl::Time began = SteadyNow();
  const absl::Duration duration = flags.Pick(absl::Seconds(10), absl::Seconds(4), absl::Milliseconds(20));
  NORMD_ASSIGN_OR_RETURN(const std::vector<double> times, CallFor(small, duration));
  NORMD_ASSIGN_OR_RETURN(const absl::Duration cpu, server->CpuTime());
  const double busy = absl::FDivDuration(cpu - cpu_before, SteadyNow() - began);
  const std::optional<double> most = transport == kNative ? std::optional(kMostMilliseconds) : std::nullopt;
  report->Row("small beside large " + name, {Ratio(busy), Amount(static_cast<double>(times.size())),
                                             Ratio(Median(times)), Ratio(Percentile(times, 0.99), {}, most)});
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureSmallBesideLarge(const Flags& flags, Report* report) {
  if (!flags.Chosen("small beside large")) return absl::OkStatus();
  report->Table(
      Concat("a call of 4 KiB beside ", kStreams,
             " streams of 16 MiB of another process, on the one queue of the echo: cores that it keeps busy, calls, "
             "their times"),
      {"busy", "calls", "median ms", "p99 ms"});
  for (const size_t transport : {kGrpc, kNative}) {
    NORMD_RETURN_IF_ERROR(WithContext(MeasureServer(transport, flags, report), "small beside large"));
  }
  return absl::OkStatus();
}

int LoadStreams(std::string_view target) {
  const size_t split = target.find('_');
  Target large = TargetOf("echo", /*stream=*/true, std::stoll(std::string(target.substr(0, split))) << 20);
  large.channels = NewChannels(std::string(target.substr(split + 1)), 1);
  absl::Status status = RunClosedLoop(large, kStreams, absl::ZeroDuration()).status();  // each of them has begun
  if (status.ok()) {
    std::printf("under way\n");
    std::fflush(stdout);
    status = RunClosedLoop(large, kStreams, absl::Hours(1)).status();
  }
  std::fprintf(stderr, "streams to %s: %s\n", std::string(target).c_str(), status.ToString().c_str());
  return 1;
}

}  // namespace normd::bench
