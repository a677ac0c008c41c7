// The parts that the forms of a report share: texts and tables.
#include "client/normload/report.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/table.h"

namespace normd::client {
namespace {

// A percentile says something if calls lie beyond it: with fewer than this number it is about the slowest call.
constexpr double kLeastBeyond = 10;
constexpr absl::string_view kFewCallsMark = "*";

bool RestsOnFew(int64_t calls, double quantile) {
  return calls > 0 && static_cast<double>(calls) * (1 - quantile) < kLeastBeyond - 1e-6;
}

std::string Late(double nanoseconds) { return CompactTime(nanoseconds); }
std::string TimeText(double nanoseconds) { return nanoseconds > 0 ? CompactTime(nanoseconds) : "-"; }
// A percentile of `calls` calls.
std::string PercentileText(double nanoseconds, int64_t calls, double quantile) {
  return absl::StrCat(TimeText(nanoseconds), RestsOnFew(calls, quantile) ? kFewCallsMark : "");
}
std::string Rate(double value) { return absl::StrFormat("%.1f", value); }

std::vector<std::string> CallRow(const CallSummary& calls) {
  const Quantiles& latency = calls.latency;
  std::vector<std::string> row = {
      calls.name,
      calls.kernel.empty() ? "-" : calls.kernel,
      Rate(calls.calls_per_second),
      Rate(calls.good_per_second),
      Rate(calls.tensors_per_second),
      Rate(calls.rows_per_second),
      Rate(calls.sent_mb_per_second),
      Rate(calls.received_mb_per_second),
  };
  for (const auto& [value, quantile] : {std::pair(latency.p50, 0.5), std::pair(latency.p90, 0.9),
                                        std::pair(latency.p99, 0.99), std::pair(latency.p999, 0.999)}) {
    row.push_back(PercentileText(static_cast<double>(value), calls.calls, quantile));
  }
  row.push_back(TimeText(static_cast<double>(latency.max)));
  row.push_back(absl::StrCat(calls.rejected));
  row.push_back(absl::StrCat(calls.failed - calls.rejected));
  return row;
}

Grid CallGrid(std::string title, const std::vector<const CallSummary*>& calls) {
  Grid grid{std::move(title), {}, 2};
  grid.rows.push_back({"calls", "kernel", "calls/s", "good/s", "tensors/s", "rows/s", "MB/s sent", "MB/s received",
                       "p50", "p90", "p99", "p99.9", "max", "rejected", "failed"});
  for (const CallSummary* each : calls) grid.rows.push_back(CallRow(*each));
  return grid;
}

// The total, and for a mix a line for each entry below it.
Grid RunGrid(std::string title, const RunSummary& run) {
  std::vector<const CallSummary*> lines = {&run.total};
  if (run.entries.size() > 1) {
    for (const CallSummary& entry : run.entries) lines.push_back(&entry);
  }
  return CallGrid(std::move(title), lines);
}

std::string RunNote(const RunSummary& run) {
  std::vector<std::string> notes;
  if (run.interrupted) notes.emplace_back("cut short");
  if (run.noisy()) notes.emplace_back("noisy");
  return absl::StrJoin(notes, ", ");
}

Grid RepeatsGrid(const std::string& title, const std::vector<RunSummary>& runs, bool open) {
  Grid grid{
      title, {{"repeat", "note", "seconds", "calls/s", "good/s", "p50", "p99", "p99.9", "rejected", "failed"}}, 2};
  std::vector<std::string>& header = grid.rows[0];
  if (open) header.insert(header.end(), {"due", "unsent", "waited", "late p50", "late p99", "late max"});
  header.emplace_back("background CPU");
  for (const RunSummary& run : runs) {
    const Quantiles& latency = run.total.latency;
    std::vector<std::string> row = {absl::StrCat(grid.rows.size()),
                                    RunNote(run),
                                    absl::StrFormat("%.2f", run.seconds),
                                    Rate(run.total.calls_per_second),
                                    Rate(run.total.good_per_second),
                                    TimeText(static_cast<double>(latency.p50)),
                                    PercentileText(static_cast<double>(latency.p99), run.total.calls, 0.99),
                                    PercentileText(static_cast<double>(latency.p999), run.total.calls, 0.999),
                                    absl::StrCat(run.total.rejected),
                                    absl::StrCat(run.total.failed - run.total.rejected)};
    if (open) {
      for (int64_t count : {run.offered, run.unsent, run.waited}) row.push_back(absl::StrCat(count));
      for (int64_t late : {run.lateness.p50, run.lateness.p99, run.lateness.max}) {
        row.push_back(Late(static_cast<double>(late)));
      }
    }
    row.push_back(ShareText(run.background));
    grid.rows.push_back(std::move(row));
  }
  return grid;
}

std::string PointNote(const SweepResult& sweep, size_t index) {
  const SweepPoint& point = sweep.points[index];
  std::vector<std::string> notes;
  if (sweep.knee == index) notes.emplace_back("knee");
  if (!point.under_slo) notes.emplace_back("over SLO");
  if (point.interrupted) notes.emplace_back("cut short");
  if (point.noisy) notes.emplace_back("noisy");
  return absl::StrJoin(notes, ", ");
}

int64_t LeastCalls(const std::vector<RunSummary>& runs) {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const RunSummary& run : runs) least = std::min(least, run.total.calls);
  return least;
}

Grid PointsGrid(const SweepResult& sweep) {
  Grid grid{"latency over load: medians of the repeats, counts of all",
            {{"load %", "note", "due/s", "answered/s", "good/s", "p50", "p99", "p99.9", "rejected", "failed", "unsent",
              "late p99", "background CPU"}},
            0};
  for (size_t i = 0; i < sweep.points.size(); ++i) {
    const SweepPoint& point = sweep.points[i];
    const int64_t calls = LeastCalls(point.runs);
    grid.rows.push_back({absl::StrFormat("%g", point.percent), PointNote(sweep, i), Rate(point.rate),
                         Rate(point.answered_per_second), Rate(point.good_per_second), TimeText(point.p50_ns),
                         PercentileText(point.p99_ns, calls, 0.99), PercentileText(point.p999_ns, calls, 0.999),
                         absl::StrCat(point.rejected), absl::StrCat(point.failed - point.rejected),
                         absl::StrCat(point.unsent), Late(point.lateness_p99_ns), ShareText(point.background)});
  }
  return grid;
}

// True if calls were sent late although workers were free: at most one call in a hundred waited for a worker, and the
// p99 of lateness is above a quarter of the SLO.
bool IsLate(const RunSummary& run, absl::Duration slo) {
  const bool workers_were_free = run.waited * 100 <= run.offered;
  return workers_were_free && absl::Nanoseconds(run.lateness.p99) > slo / 4;
}

std::vector<const RunSummary*> AllRuns(const Report& report) {
  std::vector<const RunSummary*> out;
  for (const RunSummary& run : report.runs) out.push_back(&run);
  if (!report.sweep.has_value()) return out;
  for (const RunSummary& run : report.sweep->capacity_runs) out.push_back(&run);
  for (const SweepPoint& point : report.sweep->points) {
    for (const RunSummary& run : point.runs) out.push_back(&run);
  }
  return out;
}

std::vector<Grid> SweepGrids(const SweepResult& sweep, bool every_entry) {
  std::vector<Grid> out;
  if (!sweep.capacity_runs.empty()) {
    out.push_back(RepeatsGrid("capacity, closed loop", sweep.capacity_runs, false));
    out.push_back(RunGrid("capacity, its median run", MedianRun(sweep.capacity_runs)));
  }
  out.push_back(PointsGrid(sweep));
  for (const SweepPoint& point : sweep.points) {
    if (!every_entry || point.runs[0].entries.size() < 2) break;
    out.push_back(RunGrid(absl::StrFormat("calls at %g %%, its median run", point.percent), MedianRun(point.runs)));
  }
  return out;
}

}  // namespace

std::string TitleOf(const Report& report) {
  const std::vector<MixEntry>& entries = report.options.load.entries;
  const std::string calls = entries.size() == 1 ? entries[0].name() : absl::StrCat("a mix of ", entries.size());
  return absl::StrCat(calls, " at ", report.about.server);
}

std::string FewCallsText(const Report& report) {
  const std::vector<const RunSummary*> runs = AllRuns(report);
  const bool any = std::any_of(runs.begin(), runs.end(), [](const RunSummary* run) {
    const auto few = [](const CallSummary& calls) { return RestsOnFew(calls.calls, 0.999); };
    return few(run->total) || std::any_of(run->entries.begin(), run->entries.end(), few);
  });
  if (!any) return "";
  return absl::StrFormat("%s fewer than %g calls lie beyond this percentile: it is about the slowest call",
                         kFewCallsMark, kLeastBeyond);
}

std::string CompactTime(double nanoseconds) { return absl::StrReplaceAll(NanosecondsText(nanoseconds), {{" ", ""}}); }

std::string ShareText(std::optional<double> share) {
  return share.has_value() ? absl::StrFormat("%.1f%%", *share * 100) : "unknown";
}

std::vector<std::pair<std::string, std::string>> SetupLines(const Report& report) {
  const LoadOptions& load = report.options.load;
  std::vector<std::pair<std::string, std::string>> out = {{"mode", report.options.mode()}};
  const bool open = report.options.sweep || load.rate.has_value();
  if (load.rate.has_value()) out.emplace_back("rate", absl::StrFormat("%g calls/s", *load.rate));
  if (open) out.emplace_back("arrivals", std::string(ArrivalName(load.arrivals)));
  out.emplace_back("seed", absl::StrCat(load.seed));
  if (report.options.sweep) {
    out.emplace_back("loads", absl::StrCat(absl::StrJoin(report.options.loads, ", "), " % of capacity"));
  }
  for (const MixEntry& entry : load.entries) {
    out.emplace_back("calls", absl::StrCat(entry.name(), load.entries.size() > 1 ? ", weight " : "",
                                           load.entries.size() > 1 ? absl::StrCat(entry.weight) : ""));
  }
  out.emplace_back("in flight", absl::StrCat("at most ", load.concurrency, " on ", load.connections,
                                             " connection(s), of which the server takes ", load.max_streams, " each"));
  out.emplace_back("measured",
                   absl::StrCat(absl::FormatDuration(load.duration), " after ", absl::FormatDuration(load.warmup),
                                " of warm-up, ", report.options.repeats, " repeat(s)"));
  out.emplace_back("deadline", absl::FormatDuration(load.deadline));
  out.emplace_back("SLO", absl::StrCat("p99 within ", absl::FormatDuration(load.slo)));
  return out;
}

std::vector<std::pair<std::string, std::string>> AboutLines(const Report& report) {
  const RunInfo& about = report.about;
  std::optional<double> most;
  for (const RunSummary* run : AllRuns(report)) {
    if (run->background.has_value()) most = std::max(most.value_or(0), *run->background);
  }
  return {
      {"command", about.command},
      {"date", about.date},
      {"machine", about.machine},
      {"load average before", absl::StrFormat("%.2f", about.load_average)},
      {"server", absl::StrCat("normd ", about.server_version, " (", about.numerics, ") at ", about.server)},
      {"client", absl::StrCat("normload ", about.client_version, ", commit ", about.commit)},
      {"background CPU", absl::StrCat(ShareText(about.background_before), " before, at most ", ShareText(most),
                                      " during, ", ShareText(about.background_after), " after",
                                      about.server_pid.has_value()
                                          ? absl::StrCat("; not background: normload and process ", *about.server_pid)
                                          : "; not background: normload alone, the server's process is not known")}};
}

std::string KneeText(const Report& report) {
  if (!report.sweep.has_value()) return "";
  const SweepResult& sweep = *report.sweep;
  const std::string slo = absl::FormatDuration(report.options.load.slo);
  if (sweep.points.empty()) return "no knee: no load was measured";
  if (!sweep.knee.has_value()) {
    return absl::StrCat("no knee: at the lowest load already, p99 is not within ", slo);
  }
  const SweepPoint& knee = sweep.points[*sweep.knee];
  return absl::StrFormat("knee: %g %% of capacity, %.1f calls/s due: the last load whose p99 is within %s%s",
                         knee.percent, knee.rate, slo,
                         *sweep.knee + 1 == sweep.points.size() ? " (and the highest that was tried)" : "");
}

std::vector<std::string> Warnings(const Report& report) {
  std::vector<std::string> out;
  const std::vector<const RunSummary*> runs = AllRuns(report);
  if (!report.interrupted.empty()) {
    out.push_back(
        absl::StrCat("ended early by ", report.interrupted, runs.empty() ? ", before a call was measured" : ""));
  }
  int64_t cut_off = 0;
  for (const RunSummary* run : runs) cut_off += run->cut_off;
  if (cut_off > 0) {
    out.push_back(absl::StrCat(cut_off, " calls were in flight then and got no answer: they count as neither"));
  }
  const LoadOptions& load = report.options.load;
  if (const int in_server = load.connections * load.max_streams; load.concurrency > in_server) {
    out.push_back(absl::StrCat(load.concurrency - in_server, " of ", load.concurrency,
                               " calls in flight wait in the client: the server takes ", load.max_streams,
                               " of a connection at a time; give --connections=",
                               (load.concurrency + load.max_streams - 1) / load.max_streams, " or leave it out"));
  }
  const auto noisy = std::count_if(runs.begin(), runs.end(), [](const RunSummary* run) { return run->noisy(); });
  if (noisy > 0) {
    out.push_back(absl::StrFormat("noisy: others used more than %.0f %% of the machine's CPU in %d of %d runs",
                                  kNoisyShare * 100, noisy, runs.size()));
  }
  if (!report.about.server_pid.has_value()) {
    out.emplace_back("the server's process is not known (--server-pid names it): its CPU use counts as background");
  }
  const auto unsent = std::count_if(runs.begin(), runs.end(), [](const RunSummary* run) { return run->unsent > 0; });
  if (unsent > 0) {
    out.push_back(absl::StrFormat(
        "calls that were due were never sent in %d of %d runs: all that may be in flight were", unsent, runs.size()));
  }
  const absl::Duration slo = report.options.load.slo;
  const auto late = std::count_if(runs.begin(), runs.end(), [slo](const RunSummary* run) { return IsLate(*run, slo); });
  if (late > 0) {
    out.push_back(absl::StrFormat("the generator itself was late in %d of %d runs: their latencies hold its own delay",
                                  late, runs.size()));
  }
  if (report.sweep.has_value() && !report.sweep->cut_short.empty()) {
    out.push_back(absl::StrCat("cut short: ", report.sweep->cut_short));
  }
  return out;
}

std::vector<Grid> ReportGrids(const Report& report, bool every_entry) {
  if (report.sweep.has_value()) return SweepGrids(*report.sweep, every_entry);
  if (report.runs.empty()) return {};
  const std::string title = report.runs.size() > 1 ? "the median run" : "";
  return {RunGrid(title, MedianRun(report.runs)),
          RepeatsGrid("repeats", report.runs, report.options.load.rate.has_value())};
}

}  // namespace normd::client
