#include "client/normload/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_replace.h"

namespace normd::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr char kEvil[] = "sessions/<script>alert(\"x\" & 'y')</script>";

RunSummary MakeRun(double rate, int64_t p50) {
  RunSummary run;
  run.total.name = "total";
  run.total.calls = run.total.good = run.offered = 1000;
  run.total.calls_per_second = run.total.good_per_second = rate;
  run.total.latency = {p50, 2 * p50, 3 * p50, 4 * p50, 5 * p50, 1.0};
  run.seconds = 1000 / rate;
  run.lateness.p99 = 1500;
  run.background = 0.034;
  run.total.latency_curve = {{0, 0.5 * p50}, {1, 2.0 * p50}, {2, 3.0 * p50}};
  CallSummary one = run.total, other = run.total;
  one.name = kEvil;
  other.name = "rms-norm 4x4 f32 unary";
  run.entries = {one, other};
  return run;
}

Report MakeSweepReport() {
  Report report;
  report.about = {"2026-01-02T03:04:05+00:00", "a CPU, 2 CPUs", 0.5, "127.0.0.1:1", "1.2.3", "n1", "0.1.0",
                  "normload --sweep",          "c0ffee",        77,  0.01,          0.02};
  report.options.sweep = true;
  report.options.repeats = 3;
  report.options.loads = {50, 100, 150};
  report.options.load.entries.resize(2);
  report.options.load.connections = 1;
  report.options.load.entries[0].session = kEvil;
  report.options.load.slo = absl::Milliseconds(2);
  SweepResult sweep;
  sweep.capacity_runs = {MakeRun(1000, 1000)};
  sweep.capacity = 1000;
  for (double percent : {50.0, 100.0, 150.0}) {
    sweep.points.push_back(
        MakePoint(percent, 10 * percent, {MakeRun(10 * percent, static_cast<int64_t>(1e4 * percent))}));
  }
  sweep.points[2].under_slo = false;
  sweep.knee = FindKnee(sweep.points);
  report.sweep = sweep;
  return report;
}

Report MakeRunReport() {
  Report report = MakeSweepReport();
  report.sweep.reset();
  report.options.sweep = false;
  report.options.load.rate = 100;
  report.runs = {MakeRun(100, 1000), MakeRun(120, 1000), MakeRun(110, 1000)};
  return report;
}

// What a script block of the page holds.
std::string BlockOf(const std::string& html, absl::string_view tag) {
  const size_t begin = html.find(std::string(tag)) + tag.size();
  return html.substr(begin, html.find("</script>", begin) - begin);
}

nlohmann::json JsonOf(const std::string& html) {
  return nlohmann::json::parse(BlockOf(html, "<script type=\"application/json\" id=\"report\">"));
}

TEST(Html, HoldsTheReportAndItsTables) {
  for (const Report& report : {MakeSweepReport(), MakeRunReport()}) {
    nlohmann::json json = JsonOf(ReportHtml(report));
    const nlohmann::json page = json["page"];
    json.erase("page");
    EXPECT_EQ(json, ReportJson(report));
    const std::vector<Grid> grids = ReportGrids(report, true);
    ASSERT_EQ(page["grids"].size(), grids.size());
    for (size_t i = 0; i < grids.size(); ++i) {
      EXPECT_EQ(page["grids"][i]["title"], grids[i].title);
      EXPECT_EQ(page["grids"][i]["rows"], grids[i].rows);
      EXPECT_EQ(page["grids"][i]["left_columns"], grids[i].left_columns);
    }
    EXPECT_EQ(page["setup"], SetupLines(report));
    EXPECT_EQ(page["about"], AboutLines(report));
    EXPECT_EQ(page["knee"], KneeText(report));
    EXPECT_EQ(page["few_calls"], FewCallsText(report));
    EXPECT_EQ(page["slo"], "2ms");
  }
  const std::string html = ReportHtml(MakeSweepReport());
  for (const char* part :
       {"Latency over load", "Goodput over load", "capacity, closed loop",
        "knee: 100 % of capacity, 1000.0 calls/s due", "over SLO", "c0ffee", "2026-01-02T03:04:05", "a CPU, 2 CPUs",
        "normd 1.2.3 (n1)", "3 repeat(s)", "20240607", "1.0% before, at most 3.4% during, 2.0% after", "late p99"}) {
    EXPECT_THAT(html, HasSubstr(part));
  }
}

TEST(Html, BeginsWithTheFiguresThatPeopleLookFor) {
  Report report = MakeRunReport();
  report.runs[2].total.failed = 7;
  const nlohmann::json headline = JsonOf(ReportHtml(report))["page"]["headline"];
  EXPECT_EQ(headline["caption"], "the median run");
  EXPECT_EQ(headline["run"]["calls_per_second"], 110);
  EXPECT_EQ(headline["run"]["failed"], 7);
  EXPECT_EQ(headline["run"]["latency_ns"]["p99"], 3000);
  report = MakeSweepReport();
  EXPECT_EQ(JsonOf(ReportHtml(report))["page"]["headline"]["caption"], "at the knee, its median run");
  report.sweep->knee.reset();
  EXPECT_EQ(JsonOf(ReportHtml(report))["page"]["headline"]["caption"], "at capacity, in a closed loop, its median run");
}

TEST(Html, HasTheLatencyOfASingleRunByPercentile) {
  const nlohmann::json curves = JsonOf(ReportHtml(MakeRunReport()))["page"]["latency_curves"];
  ASSERT_EQ(curves.size(), 3u);  // all calls and the two entries
  EXPECT_EQ(curves[0]["name"], "total");
  EXPECT_EQ(curves[0]["points"], (std::vector<std::vector<double>>{{0, 500}, {1, 2000}, {2, 3000}}));
  EXPECT_EQ(curves[1]["name"], kEvil);
}

TEST(Summary, CurvesEndWhereTheCallsTellNothingMore) {
  Histogram histogram;
  EXPECT_TRUE(CurveOf(histogram).empty());
  for (int i = 1; i <= 100; ++i) histogram.Record(i);
  const auto curve = CurveOf(histogram);
  EXPECT_EQ(curve.front(), (std::pair<double, double>(0, 1)));
  EXPECT_EQ(curve.back(), (std::pair<double, double>(2, 99)));
}

TEST(Html, LetsNoValueIn) {
  for (const Report& report : {MakeSweepReport(), MakeRunReport()}) {
    const std::string html = ReportHtml(report);
    const std::string block = BlockOf(html, "<script type=\"application/json\" id=\"report\">");
    EXPECT_THAT(block, Not(HasSubstr("<")));
    EXPECT_THAT(block, HasSubstr("sessions/\\u003cscript>alert(\\\"x\\\" & 'y')\\u003c/script>"));
    EXPECT_EQ(nlohmann::json::parse(block)["load"]["entries"][0]["session"], kEvil);
    // Around the block the page is the template, whose script reads the block and writes no markup.
    EXPECT_EQ(absl::StrReplaceAll(ReportPageTemplate(), {{"\n{{report}}", block}}), html);
  }
  for (const char* part : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval"}) {
    EXPECT_THAT(std::string(ReportPageTemplate()), Not(HasSubstr(part)));
  }
}

TEST(Html, LoadsNothingFromElsewhere) {
  std::string html = ReportHtml(MakeSweepReport());
  const std::string name = "\"http://www.w3.org/2000/svg\"";  // a name, which nobody fetches
  for (size_t at = html.find(name); at != std::string::npos; at = html.find(name)) html.erase(at, name.size());
  for (const char* part : {"http", "src=", "href=", "@import", "url("}) EXPECT_THAT(html, Not(HasSubstr(part)));
}

TEST(Html, StandsWithoutAnyAnswer) {
  Report report = MakeSweepReport();
  report.sweep->points = {MakePoint(10, 0.01, {RunSummary()})};
  report.sweep->knee.reset();
  report.sweep->cut_short = "no call was answered";
  const nlohmann::json json = JsonOf(ReportHtml(report));
  EXPECT_THAT(json["warnings"].dump(), HasSubstr("cut short: no call was answered"));
  for (const char* value : {"p50_ns", "p99_ns", "p99.9_ns", "answered_per_second", "good_per_second"}) {
    EXPECT_EQ(json["sweep"]["points"][0][value], 0) << value;  // not NaN, which is null in JSON
  }
  report.sweep->points.clear();
  EXPECT_THAT(ReportHtml(report), HasSubstr("no load was measured"));
}

TEST(Text, HoldsTheMedianRunAndAllRepeats) {
  const std::string text = ReportText(MakeRunReport(), 200);
  for (const char* part : {"mode: open loop", "rate: 100 calls/s", "arrivals: poisson", "seed: 20240607", "p99.9",
                           "110.0", "late p99", "1.5us", "background CPU", "commit c0ffee", "process 77"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(Text, SaysWhatMakesNumbersDoubtful) {
  Report report = MakeRunReport();
  EXPECT_THAT(Warnings(report), testing::IsEmpty());
  report.runs[1].background = 0.4;
  report.runs[2].unsent = 5;
  report.runs[0].lateness.p99 = report.runs[1].lateness.p99 = 600'000;  // of an SLO of 2 ms
  report.runs[1].waited = 500;                                          // which explains it
  report.about.server_pid.reset();
  EXPECT_THAT(Warnings(report),
              ElementsAre(HasSubstr("noisy: others used more than 10 % of the machine's CPU in 1 of 3"),
                          HasSubstr("the server's process is not known"), HasSubstr("never sent in 1 of 3 runs"),
                          HasSubstr("generator itself was late in 1 of 3 runs")));
  EXPECT_THAT(ReportText(report, 200), HasSubstr("warning: noisy"));
}

TEST(Report, SaysInItsHeadWhatItIsAbout) {
  Report report = MakeRunReport();
  report.options.load.entries.resize(1);
  report.options.load.entries[0].session = "";
  report.about.command = "normload --mix 'a b'";
  const nlohmann::json json = JsonOf(ReportHtml(report));
  EXPECT_EQ(json["page"]["title"], "layer-norm 256x768 f32 unary at 127.0.0.1:1");
  EXPECT_EQ(json["load"]["mode"], "open loop");
  EXPECT_EQ(json["about"]["server_version"], "1.2.3");
  EXPECT_EQ(json["about"]["date"], "2026-01-02T03:04:05+00:00");
  EXPECT_THAT(ReportText(report, 200), HasSubstr("command: normload --mix 'a b'\n"));
  EXPECT_EQ(ReportJson(report)["about"]["command"], "normload --mix 'a b'");
  EXPECT_THAT(TitleOf(MakeRunReport()), HasSubstr("a mix of 2 at "));
  const std::vector<std::string> arguments = {"-c", "2", "", "it's", "--slo=5ms"};
  EXPECT_EQ(CommandText("normload", arguments), "normload -c 2 '' 'it'\\''s' --slo=5ms");
}

TEST(Report, TheNoteStandsWhereNoPageCutsItOff) {
  for (const Report& report : {MakeRunReport(), MakeSweepReport()}) {
    int notes = 0;
    for (const Grid& grid : ReportGrids(report, true)) {
      const auto at = std::find(grid.rows[0].begin(), grid.rows[0].end(), "note");
      if (at == grid.rows[0].end()) continue;
      ++notes;
      EXPECT_EQ(at - grid.rows[0].begin(), 1);
      for (const auto& row : grid.rows) EXPECT_EQ(row.size(), grid.rows[0].size()) << grid.title;
    }
    EXPECT_GT(notes, 0);
  }
}

TEST(Report, MarksPercentilesThatRestOnFewCalls) {
  Report report = MakeRunReport();
  const std::string marked = ReportText(report, 250);  // of 1,000 calls each
  EXPECT_THAT(marked, HasSubstr("4us*"));
  EXPECT_THAT(marked, Not(HasSubstr("3us*")));
  EXPECT_THAT(marked, HasSubstr("* fewer than 10 calls lie beyond this percentile"));
  EXPECT_THAT(ReportHtml(report), HasSubstr("* fewer than 10 calls"));
  for (RunSummary& run : report.runs) {
    run.total.calls = 999;
    for (CallSummary& entry : run.entries) entry.calls = 100'000;
  }
  EXPECT_THAT(ReportText(report, 250), HasSubstr("3us*"));
  for (RunSummary& run : report.runs) run.total.calls = 10'000;
  EXPECT_THAT(ReportText(report, 250), Not(HasSubstr("*")));
}

TEST(Report, SaysWhichCallsWaitInTheClient) {
  Report report = MakeRunReport();
  LoadOptions& load = report.options.load;
  load.concurrency = 32;
  load.connections = 1;
  load.max_streams = 8;
  EXPECT_THAT(Warnings(report), ElementsAre("24 of 32 calls in flight wait in the client: the server takes 8 of a "
                                            "connection at a time; give --connections=4 or leave it out"));
  load.connections = 4;
  EXPECT_THAT(Warnings(report), testing::IsEmpty());
  EXPECT_THAT(ReportText(report, 200), HasSubstr("at most 32 on 4 connection(s), of which the server takes 8 each"));
}

TEST(Report, SaysThatASignalEndedIt) {
  Report report = MakeRunReport();
  report.interrupted = "SIGINT";
  report.runs[2].interrupted = true;
  report.runs[2].cut_off = 3;
  EXPECT_THAT(Warnings(report), ElementsAre("ended early by SIGINT", HasSubstr("3 calls were in flight then")));
  EXPECT_THAT(ReportText(report, 250), HasSubstr("cut short"));
  EXPECT_THAT(ReportHtml(report), HasSubstr("ended early by SIGINT"));
  EXPECT_EQ(ReportJson(report)["interrupted"], "SIGINT");
  report.runs.clear();
  EXPECT_THAT(ReportText(report, 200), HasSubstr("before a call was measured"));
  EXPECT_THAT(ReportHtml(report), HasSubstr("before a call was measured"));
  EXPECT_EQ(ReportJson(MakeRunReport())["interrupted"], nullptr);
}

TEST(Json, HasTheMedianOnTopAndRepeatsBelow) {
  const nlohmann::json json = ReportJson(MakeRunReport());
  EXPECT_EQ(json["calls_per_second"], 110);
  EXPECT_EQ(json["runs"].size(), 3u);
  EXPECT_EQ(json["entries"].size(), 2u);
  EXPECT_EQ(json["latency_ns"]["p99.9"], 4000);
  EXPECT_EQ(json["about"]["commit"], "c0ffee");
  EXPECT_EQ(json["load"]["repeats"], 3);
}

TEST(Json, HasTheSweep) {
  const nlohmann::json json = ReportJson(MakeSweepReport())["sweep"];
  EXPECT_EQ(json["knee"], 1);
  EXPECT_EQ(json["points"].size(), 3u);
  EXPECT_EQ(json["points"][2]["under_slo"], false);
  EXPECT_EQ(json["capacity_per_second"], 1000);
}

}  // namespace
}  // namespace normd::client
