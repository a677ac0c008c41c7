#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/normload/chart.h"
#include "client/normload/report.h"

namespace normd::client {
namespace {

constexpr absl::string_view kHead = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>normload: @TITLE@</title>
<style>
:root { color-scheme: light dark; --ink: #1c2430; --paper: #ffffff; --card: #f6f8fa; --faint: #d9dee6; --soft: #5b6675;
  --alert: #b3261e; --one: #2a78c2; --two: #d97706; --three: #a12c7b; --four: #1a7f47; --five: #6b4fc0; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ee; --paper: #14181e; --card: #1b2129; --faint: #323a46; --soft: #9aa5b4; --alert: #ff8a80;
    --one: #6db3f2; --two: #f5b14c; --three: #e58cc9; --four: #6bd49a; --five: #b39df0; } }
* { box-sizing: border-box; }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h1, code { overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin-top: 2rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: .6rem; margin: 1rem 0; }
.tile { background: var(--card); border: 1px solid var(--faint); border-radius: .4rem; padding: .5rem .7rem; }
.tile span { display: block; color: var(--soft); font-size: .85em; } .tile b { font-size: 1.4rem; }
.caption { color: var(--soft); margin: 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
th, td { padding: .25rem .45rem; border-bottom: 1px solid var(--faint); text-align: right; }
th { vertical-align: bottom; } td { white-space: nowrap; }
.left, .note { text-align: left; white-space: normal; }
.words td, .words th { text-align: left; white-space: normal; font-weight: normal; overflow-wrap: anywhere; }
.words th { color: var(--soft); white-space: nowrap; vertical-align: top; }
.knee { font-weight: 600; } .warning { color: var(--alert); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 0 2rem; }
figure { margin: 1rem 0; } figcaption { font-weight: 600; }
svg { width: 100%; max-width: 48rem; height: auto; overflow: visible; }
.legend { display: flex; flex-wrap: wrap; gap: 0 1rem; font-size: .85em; }
.legend span::before { content: ""; display: inline-block; width: .9em; height: .2em; margin-right: .35em;
  vertical-align: middle; background: currentColor; }
svg text { fill: var(--soft); font-size: 12px; } .grid { stroke: var(--faint); }
.guide { stroke: var(--alert); stroke-dasharray: 6 4; }
.all { display: none; }
@media (max-width: 60rem) { .all { display: block; margin-top: 1rem; color: var(--soft); }
  .all:not(:has(:checked)) ~ .wide .more { display: none; } th, td { padding: .25rem .3rem; }
  .words th { white-space: normal; min-width: 6rem; } svg text { font-size: 14px; } }
@media (max-width: 30rem) { body { padding: 0 .75rem; margin: 1rem auto; } .tiles { grid-template-columns: 1fr 1fr; }
  svg text { font-size: 21px; } .y-label { display: none; } }
</style>
</head>
<body>
<h1>normload: @TITLE@</h1>
<p class="caption">@MODE@, normd @VERSION@, @DATE@</p>
<p><code>@COMMAND@</code></p>
)";

std::string HeadHtml(const Report& report) {
  return absl::StrReplaceAll(kHead, {{"@TITLE@", EscapeHtml(TitleOf(report))},
                                     {"@MODE@", report.options.mode()},
                                     {"@VERSION@", EscapeHtml(report.about.server_version)},
                                     {"@DATE@", EscapeHtml(report.about.date)},
                                     {"@COMMAND@", EscapeHtml(report.about.command)}});
}

std::string WordsHtml(const std::vector<std::pair<std::string, std::string>>& lines) {
  std::string out = "<table class=\"words\">\n";
  for (const auto& [name, value] : lines) {
    absl::StrAppend(&out, "<tr><th>", EscapeHtml(name), "</th><td>", EscapeHtml(value), "</td></tr>\n");
  }
  return out + "</table>\n";
}

// The columns that are looked for first; a narrow page shows the others when it is asked to.
bool IsEssential(const std::string& header) {
  constexpr absl::string_view kEssential[] = {"calls",  "calls/s", "p50",   "p99",        "failed", "unsent",
                                              "repeat", "load %",  "due/s", "answered/s", "note"};
  return std::find(std::begin(kEssential), std::end(kEssential), header) != std::end(kEssential);
}

std::string GridHtml(const Grid& grid) {
  std::string out;
  if (!grid.title.empty()) absl::StrAppend(&out, "<h2>", EscapeHtml(grid.title), "</h2>\n");
  out += "<div class=\"wide\"><table>\n";
  for (size_t row = 0; row < grid.rows.size(); ++row) {
    const char* tag = row == 0 ? "th" : "td";
    out += "<tr>";
    for (size_t i = 0; i < grid.rows[row].size(); ++i) {
      const std::string& header = grid.rows[0][i];
      const char* side = header == "note" ? "note" : i < grid.left_columns ? "left" : "";
      absl::StrAppend(&out, "<", tag, " class=\"", side, IsEssential(header) ? "" : " more", "\">",
                      EscapeHtml(grid.rows[row][i]), "</", tag, ">");
    }
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

// The run that the headline is about, and what it is; null if there is none.
std::pair<const RunSummary*, std::string> HeadlineRun(const Report& report) {
  if (!report.runs.empty()) return {&MedianRun(report.runs), report.runs.size() > 1 ? "the median run" : ""};
  if (!report.sweep.has_value()) return {nullptr, ""};
  const SweepResult& sweep = *report.sweep;
  if (sweep.knee.has_value()) return {&MedianRun(sweep.points[*sweep.knee].runs), "at the knee, its median run"};
  if (sweep.capacity_runs.empty()) return {nullptr, ""};
  return {&MedianRun(sweep.capacity_runs), "at capacity, in a closed loop, its median run"};
}

std::string TileHtml(absl::string_view name, absl::string_view value, bool alert = false) {
  return absl::StrCat("<div class=\"tile\"><span>", EscapeHtml(name), "</span><b", alert ? " class=\"warning\"" : "",
                      ">", EscapeHtml(value), "</b></div>\n");
}

std::string HeadlineHtml(const Report& report) {
  const auto [run, caption] = HeadlineRun(report);
  if (run == nullptr) return "";
  const CallSummary& total = run->total;
  const auto time = [](int64_t ns) { return ns > 0 ? CompactTime(static_cast<double>(ns)) : std::string("-"); };
  const double gigabytes = (total.sent_mb_per_second + total.received_mb_per_second) / 1e3;
  std::string out;
  if (!caption.empty()) absl::StrAppend(&out, "<p class=\"caption\">", EscapeHtml(caption), "</p>\n");
  return absl::StrCat(out, "<div class=\"tiles\">\n",
                      TileHtml("calls/s", absl::StrFormat("%.1f", total.calls_per_second)),
                      TileHtml("p50", time(total.latency.p50)), TileHtml("p99", time(total.latency.p99)),
                      TileHtml("errors", absl::StrCat(total.failed), total.failed > 0),
                      TileHtml("GB/s, both ways", absl::StrFormat("%.3g", gigabytes)), "</div>\n");
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
  Chart chart{"Latency over load", "calls due in a second", "latency", true, {}, {}, Knee(sweep), {}, {}};
  chart.series = {Curve(sweep, "p50", "var(--one)", [](const SweepPoint& point) { return point.p50_ns; }),
                  Curve(sweep, "p99", "var(--two)", [](const SweepPoint& point) { return point.p99_ns; }),
                  Curve(sweep, "p99.9", "var(--three)", [](const SweepPoint& point) { return point.p999_ns; })};
  chart.horizontal = Guide{absl::ToDoubleNanoseconds(report.options.load.slo),
                           absl::StrCat("SLO: ", absl::FormatDuration(report.options.load.slo))};
  chart.y_text = [](double nanoseconds) { return CompactTime(nanoseconds); };
  return chart;
}

Chart GoodputChart(const Report& report) {
  const SweepResult& sweep = *report.sweep;
  Chart chart{"Goodput over load", "calls due in a second", "calls in a second", false, {}, {}, Knee(sweep), {}, {}};
  chart.series = {
      Curve(sweep, "answered", "var(--one)", [](const SweepPoint& point) { return point.answered_per_second; }),
      Curve(sweep, "within the SLO", "var(--two)", [](const SweepPoint& point) { return point.good_per_second; })};
  chart.horizontal = Guide{sweep.capacity, "capacity, closed loop"};
  return chart;
}

// Of one run: how the latency grows towards its slowest calls, of all calls and of each entry of a mix.
Chart PercentileChart(const Report& report) {
  constexpr const char* kColors[] = {"var(--one)", "var(--two)", "var(--three)", "var(--four)", "var(--five)"};
  const RunSummary& run = MedianRun(report.runs);
  Chart chart{"Latency by percentile", "percentile of calls", "latency", true, {}, {}, {}, {}, {}};
  std::vector<const CallSummary*> lines = {&run.total};
  for (size_t i = 0; run.entries.size() > 1 && i < run.entries.size() && lines.size() < std::size(kColors); ++i) {
    lines.push_back(&run.entries[i]);
  }
  for (const CallSummary* calls : lines) {
    chart.series.push_back({calls->name, kColors[chart.series.size()], calls->latency_curve});
  }
  chart.horizontal = Guide{absl::ToDoubleNanoseconds(report.options.load.slo),
                           absl::StrCat("SLO: ", absl::FormatDuration(report.options.load.slo))};
  chart.y_text = [](double nanoseconds) { return CompactTime(nanoseconds); };
  chart.x_text = [](double nines) {
    const double whole = std::round(nines);
    return std::abs(nines - whole) > 1e-6 ? "" : absl::StrFormat("%.10g %%", 100 - 100 * std::pow(10.0, -whole));
  };
  return chart;
}

std::string FigureHtml(const Chart& chart) {
  std::string legend;
  for (const Series& series : chart.series) {
    absl::StrAppend(&legend, "<span style=\"color: ", series.color, "\">", EscapeHtml(series.name), "</span>\n");
  }
  return absl::StrCat("<figure>\n<figcaption>", EscapeHtml(chart.title), "</figcaption>\n<div class=\"legend\">",
                      legend, "</div>\n", RenderSvg(chart), "</figure>\n");
}

}  // namespace

std::string ReportHtml(const Report& report) {
  std::string out = HeadHtml(report);
  out += HeadlineHtml(report);
  if (report.sweep.has_value()) absl::StrAppend(&out, "<p class=\"knee\">", EscapeHtml(KneeText(report)), "</p>\n");
  for (const std::string& warning : Warnings(report)) {
    absl::StrAppend(&out, "<p class=\"warning\">", EscapeHtml(warning), "</p>\n");
  }
  if (report.sweep.has_value() && !report.sweep->points.empty()) {
    absl::StrAppend(&out, "<div class=\"charts\">", FigureHtml(LatencyChart(report)), FigureHtml(GoodputChart(report)),
                    "</div>\n");
  }
  if (!report.runs.empty() && MedianRun(report.runs).total.calls > 0) out += FigureHtml(PercentileChart(report));
  out += "<label class=\"all\"><input type=\"checkbox\"> all columns</label>\n";
  for (const Grid& grid : ReportGrids(report, /*every_entry=*/true)) out += GridHtml(grid);
  if (const std::string few = FewCallsText(report); !few.empty()) {
    absl::StrAppend(&out, "<p class=\"caption\">", EscapeHtml(few), "</p>\n");
  }
  absl::StrAppend(&out, ErrorsHtml(report.runs), "<h2>what was asked for</h2>\n", WordsHtml(SetupLines(report)),
                  "<h2>where and when</h2>\n", WordsHtml(AboutLines(report)), "</body>\n</html>\n");
  return out;
}

}  // namespace normd::client
