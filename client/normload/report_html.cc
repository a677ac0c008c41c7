#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "client/cli/program.h"
#include "client/normload/report.h"

namespace normd::client {
namespace {

// The run that the headline is about, and what it is; null if there is none.
std::pair<const RunSummary*, std::string> HeadlineRun(const Report& report) {
  if (!report.runs.empty()) return {&MedianRun(report.runs), report.runs.size() > 1 ? "the median run" : ""};
  if (!report.sweep.has_value()) return {nullptr, ""};
  const SweepResult& sweep = *report.sweep;
  if (sweep.knee.has_value()) return {&MedianRun(sweep.points[*sweep.knee].runs), "at the knee, its median run"};
  if (sweep.capacity_runs.empty()) return {nullptr, ""};
  return {&MedianRun(sweep.capacity_runs), "at capacity, in a closed loop, its median run"};
}

// Of all calls of the median run, and of each entry of a mix.
nlohmann::json LatencyCurves(const std::vector<RunSummary>& runs) {
  nlohmann::json out = nlohmann::json::array();
  if (runs.empty() || MedianRun(runs).total.calls == 0) return out;
  const RunSummary& run = MedianRun(runs);
  const auto add = [&out](const CallSummary& calls) {
    out.push_back({{"name", calls.name}, {"points", calls.latency_curve}});
  };
  add(run.total);
  if (run.entries.size() > 1) std::for_each(run.entries.begin(), run.entries.end(), add);
  return out;
}

nlohmann::json PageJson(const Report& report) {
  nlohmann::json page = {{"title", TitleOf(report)},
                         {"slo", absl::FormatDuration(report.options.load.slo)},
                         {"knee", KneeText(report)},
                         {"few_calls", FewCallsText(report)},
                         {"latency_curves", LatencyCurves(report.runs)},
                         {"grids", nlohmann::json::array()},
                         {"setup", SetupLines(report)},
                         {"about", AboutLines(report)}};
  if (const auto [run, caption] = HeadlineRun(report); run != nullptr) {
    page["headline"] = {{"caption", caption}, {"run", RunJson(*run)}};
  }
  for (const Grid& grid : ReportGrids(report, /*every_entry=*/true)) {
    page["grids"].push_back({{"title", grid.title}, {"left_columns", grid.left_columns}, {"rows", grid.rows}});
  }
  return page;
}

}  // namespace

std::string ReportHtml(const Report& report) {
  nlohmann::json json = ReportJson(report);
  json["page"] = PageJson(report);
  // JSON has "<" in strings alone. Without it nothing ends the script element or begins a comment.
  const std::string text = absl::StrReplaceAll(JsonText(json), {{"<", "\\u003c"}});
  return absl::StrReplaceAll(ReportPageTemplate(), {{"{{report}}", text}});
}

}  // namespace normd::client
