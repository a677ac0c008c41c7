#include "client/normload/normload.h"

#include <signal.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cli/completion.h"
#include "client/cli/plain_probe.h"
#include "client/cli/shell_commands.h"
#include "client/cli/tensor_file.h"
#include "client/normload/background_cpu.h"
#include "client/normload/interrupt.h"
#include "client/normload/load.h"
#include "client/normload/options.h"
#include "client/normload/report.h"
#include "client/normload/run_info.h"
#include "client/normload/socket_watchdog.h"
#include "client/normload/sweep.h"

namespace normd::client {
namespace {

// How long background CPU is watched before and after: 30 ticks of the clock that /proc uses.
constexpr absl::Duration kWatch = absl::Milliseconds(300);

std::optional<double> WatchOthers(std::optional<int> server_pid) {
  BackgroundCpu background(server_pid);
  absl::SleepFor(kWatch);
  return background.Lap();
}

// Prints to the error stream, so that the output of --json stays one document.
void PrintPlan(const NormloadOptions& options, const Terminal& terminal) {
  // Each measurement may wait for its last calls until their deadline.
  const absl::Duration late = options.load.deadline + absl::Seconds(2);
  absl::Duration most = options.expected_time() + options.measurements() * late;
  if (options.sweep) most = std::min(most, options.max_time + late);
  terminal.err << absl::StrFormat("normload: %s, seed %d, takes about %s, at most %s\n", options.mode(),
                                  options.load.seed, absl::FormatDuration(options.expected_time()),
                                  absl::FormatDuration(most))
               << std::flush;
}

std::vector<RunSummary> RunRepeats(const NormloadOptions& options, const LoadTarget& target,
                                   BackgroundCpu& background) {
  std::vector<RunSummary> out;
  for (int repeat = 0; repeat < options.repeats && !InterruptedAt().has_value(); ++repeat) {
    LoadOptions load = options.load;
    load.seed += static_cast<uint64_t>(repeat);
    static_cast<void>(background.Lap());
    const LoadResult result = RunLoad(load, target);
    RunSummary summary = Summarize(load, result, background.Lap());
    if (summary.says_something()) out.push_back(std::move(summary));
  }
  return out;
}

absl::Status Verdict(const Report& report) {
  if (!report.interrupted.empty()) {
    return ReportedError(
        absl::StrCat("ended by ", report.interrupted, ": the report is of what was measured until then"));
  }
  int64_t failed = 0, rejected = 0;
  std::string first;
  const auto add = [&](const std::vector<RunSummary>& runs) {
    for (const RunSummary& run : runs) {
      failed += run.total.failed;
      rejected += run.total.rejected;
      if (first.empty()) first = run.total.first_error;
    }
  };
  add(report.runs);
  if (report.sweep.has_value()) {
    if (!report.sweep->cut_short.empty()) return ReportedError(absl::StrCat("cut short: ", report.sweep->cut_short));
    add(report.sweep->capacity_runs);
    for (const SweepPoint& point : report.sweep->points) add(point.runs);
    failed -= rejected;
  }
  if (failed == 0) return absl::OkStatus();
  return ReportedError(absl::StrCat(failed, " calls failed: ", first));
}

absl::StatusOr<v1::DescribeResponse> AskServer(const ParsedArgs& args, const LoadOptions& load) {
  const SocketWatchdog watchdog(load.deadline + absl::Seconds(1));
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  return (*client)->Describe();
}

// How many calls the server takes on one connection at a time. Where it cannot be asked, as over TLS, the least that a
// normd takes by default counts.
int MaxStreams(const LoadOptions& load) {
  if (UsesTls(load.security)) return LoadOptions().max_streams;
  const PlainAnswer answer = AskInPlainText(load.server);
  if (answer.kind != PlainKind::kHttp2) return LoadOptions().max_streams;
  return answer.max_streams.value_or(load.concurrency);  // HTTP/2 sets no limit unless the server does
}

absl::StatusOr<Report> MakeReport(const ParsedArgs& args, const NormloadOptions& options, const Terminal& terminal) {
  const absl::StatusOr<v1::DescribeResponse> server = AskServer(args, options.load);
  if (!server.ok()) return server.status();
  const std::optional<int> pid =
      options.server_pid.has_value() ? options.server_pid : FindServerPid(options.load.server);
  Report report{MakeRunInfo(options.load.server, *server, pid), options, {}, {}, ""};
  report.about.command = options.command;
  SetConnections(MaxStreams(options.load), report.options.load);
  report.about.background_before = WatchOthers(pid);
  const absl::StatusOr<std::unique_ptr<LoadTarget>> target = LoadTarget::Connect(report.options.load);
  if (!target.ok()) return target.status();
  PrintPlan(options, terminal);
  BackgroundCpu background(pid);
  const InterruptGuard guard;
  if (options.sweep) {
    report.sweep = RunSweep(report.options, **target, background, [&](absl::string_view what) {
      if (terminal.err_is_tty) terminal.err << "  " << what << "\n" << std::flush;
    });
  } else {
    report.runs = RunRepeats(report.options, **target, background);
  }
  if (const int signal = InterruptSignal(); signal != 0) {
    report.interrupted = InterruptName(signal);
  } else {
    report.about.background_after = WatchOthers(pid);
  }
  return report;
}

// Sets `exit_code` where a signal ended the measurement, to what a shell gives a program that the signal ends.
absl::Status Measure(const ParsedArgs& args, const std::string& command, const Terminal& terminal, int* exit_code) {
  absl::StatusOr<NormloadOptions> options = MakeOptions(args);
  if (!options.ok()) return options.status();
  options->command = command;
  const absl::StatusOr<Report> report = MakeReport(args, *options, terminal);
  if (!report.ok()) return report.status();
  terminal.out << (args.Has("json") ? JsonText(ReportJson(*report)) : ReportText(*report, terminal.width));
  if (!options->html.empty()) {
    if (absl::Status status = WriteFile(options->html, ReportHtml(*report)); !status.ok()) return Reported(status);
  }
  if (!report->interrupted.empty()) *exit_code = 128 + (report->interrupted == "SIGINT" ? SIGINT : SIGTERM);
  return Verdict(*report);
}

}  // namespace

int RunNormload(absl::Span<const std::string> arguments, const Terminal& terminal) {
  const std::vector<CommandSpec> commands = {NormloadSpec(), CompletionSpec(), ManSpec()};
  const std::string first = arguments.empty() ? "" : arguments[0];
  if (first == kCompleteFlag) {
    terminal.out << CompletionText(commands, arguments.subspan(1));
    return kExitOk;
  }
  if (first == "completion") {
    return RunCommand(
        "normload", commands[1], arguments.subspan(1), terminal,
        [&](const ParsedArgs& args, const Terminal& colored) { return RunCompletion("normload", args, colored); });
  }
  if (first == "man") {
    return RunCommand(
        "normload", commands[2], arguments.subspan(1), terminal,
        [&](const ParsedArgs& args, const Terminal& colored) { return RunMan("normload", commands, args, colored); });
  }
  int of_signal = 0;
  const int code =
      RunCommand("normload", commands[0], arguments, terminal, [&](const ParsedArgs& args, const Terminal& colored) {
        return Measure(args, CommandText("normload", arguments), colored, &of_signal);
      });
  return of_signal != 0 ? of_signal : code;
}

}  // namespace normd::client
