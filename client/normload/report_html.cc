#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/table.h"
#include "client/normload/chart.h"
#include "client/normload/report.h"

namespace normd::client {
namespace {

constexpr absl::string_view kHead = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>normload report</title>
<style>
:root { --ink: #1c2430; --paper: #ffffff; --faint: #d9dee6; --soft: #5b6675; --alert: #b3261e;
  --one: #2a78c2; --two: #d97706; --three: #a12c7b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ee; --paper: #14181e; --faint: #323a46; --soft: #9aa5b4; --alert: #ff8a80;
    --one: #6db3f2; --two: #f5b14c; --three: #e58cc9; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--faint); text-align: right; white-space: nowrap; }
.left { text-align: left; }
.words td, .words th { text-align: left; white-space: normal; font-weight: normal; }
.words th { color: var(--soft); white-space: nowrap; vertical-align: top; }
.knee { font-weight: 600; } .warning { color: var(--alert); }
figure { margin: 1rem 0; } figcaption { font-weight: 600; } svg { width: 100%; max-width: 48rem; height: auto; }
svg text { fill: var(--soft); font-size: 12px; } .grid { stroke: var(--faint); }
.guide { stroke: var(--alert); stroke-dasharray: 6 4; }
</style>
</head>
<body>
<h1>normload report</h1>
)";

std::string WordsHtml(const std::vector<std::pair<std::string, std::string>>& lines) {
  std::string out = "<table class=\"words\">\n";
  for (const auto& [name, value] : lines) {
    absl::StrAppend(&out, "<tr><th>", EscapeHtml(name), "</th><td>", EscapeHtml(value), "</td></tr>\n");
  }
  return out + "</table>\n";
}

std::string GridHtml(const Grid& grid) {
  std::string out;
  if (!grid.title.empty()) absl::StrAppend(&out, "<h2>", EscapeHtml(grid.title), "</h2>\n");
  out += "<div class=\"wide\"><table>\n";
  for (size_t row = 0; row < grid.rows.size(); ++row) {
    const char* tag = row == 0 ? "th" : "td";
    out += "<tr>";
    for (size_t i = 0; i < grid.rows[row].size(); ++i) {
      absl::StrAppend(&out, "<", tag, i < grid.left_columns ? " class=\"left\">" : ">", EscapeHtml(grid.rows[row][i]),
                      "</", tag, ">");
    }
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string ErrorsHtml(const std::vector<RunSummary>& runs) {
  std::vector<std::pair<std::string, std::string>> lines;
  for (const RunSummary& run : runs) {
    for (const auto& [code, count] : run.total.errors) lines.emplace_back(code, absl::StrCat(count));
    if (!run.total.errors.empty()) lines.emplace_back("first", run.total.first_error);
  }
  return lines.empty() ? "" : absl::StrCat("<h2>errors</h2>\n", WordsHtml(lines));
}

using Value = double (*)(const SweepPoint&);

Series Curve(const SweepResult& sweep, const char* name, const char* color, Value value) {
  Series series{name, color, {}};
  for (const SweepPoint& point : sweep.points) series.points.emplace_back(point.rate, value(point));
  return series;
}

std::optional<Guide> Knee(const SweepResult& sweep) {
  if (!sweep.knee.has_value()) return std::nullopt;
  const SweepPoint& knee = sweep.points[*sweep.knee];
  return Guide{knee.rate, absl::StrFormat("knee: %g %%", knee.percent)};
}

Chart LatencyChart(const Report& report) {
  const SweepResult& sweep = *report.sweep;
  Chart chart{"Latency over load", "calls due in a second", "latency", true, {}, {}, Knee(sweep), {}};
  chart.series = {Curve(sweep, "p50", "var(--one)", [](const SweepPoint& point) { return point.p50_ns; }),
                  Curve(sweep, "p99", "var(--two)", [](const SweepPoint& point) { return point.p99_ns; }),
                  Curve(sweep, "p99.9", "var(--three)", [](const SweepPoint& point) { return point.p999_ns; })};
  chart.horizontal = Guide{absl::ToDoubleNanoseconds(report.options.load.slo),
                           absl::StrCat("SLO: ", absl::FormatDuration(report.options.load.slo))};
  chart.y_text = [](double nanoseconds) { return NanosecondsText(nanoseconds); };
  return chart;
}

Chart GoodputChart(const Report& report) {
  const SweepResult& sweep = *report.sweep;
  Chart chart{"Goodput over load", "calls due in a second", "calls in a second", false, {}, {}, Knee(sweep), {}};
  chart.series = {
      Curve(sweep, "answered", "var(--one)", [](const SweepPoint& point) { return point.answered_per_second; }),
      Curve(sweep, "within the SLO", "var(--two)", [](const SweepPoint& point) { return point.good_per_second; })};
  chart.horizontal = Guide{sweep.capacity, "capacity, closed loop"};
  return chart;
}

std::string FigureHtml(const Chart& chart) {
  return absl::StrCat("<figure>\n<figcaption>", EscapeHtml(chart.title), "</figcaption>\n", RenderSvg(chart),
                      "</figure>\n");
}

}  // namespace

std::string ReportHtml(const Report& report) {
  std::string out(kHead);
  if (report.sweep.has_value()) absl::StrAppend(&out, "<p class=\"knee\">", EscapeHtml(KneeText(report)), "</p>\n");
  for (const std::string& warning : Warnings(report)) {
    absl::StrAppend(&out, "<p class=\"warning\">", EscapeHtml(warning), "</p>\n");
  }
  if (report.sweep.has_value() && !report.sweep->points.empty()) {
    absl::StrAppend(&out, FigureHtml(LatencyChart(report)), FigureHtml(GoodputChart(report)));
  }
  for (const Grid& grid : ReportGrids(report, /*every_entry=*/true)) out += GridHtml(grid);
  absl::StrAppend(&out, ErrorsHtml(report.runs), "<h2>what was asked for</h2>\n", WordsHtml(SetupLines(report)),
                  "<h2>where and when</h2>\n", WordsHtml(AboutLines(report)), "</body>\n</html>\n");
  return out;
}

}  // namespace normd::client
