#include "server/admin/status_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/server/admin/metric_series.h"

namespace normd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

MetricSeries PhaseSeries(const char* phase, double bound, uint64_t count) {
  return HistogramSeries({{"method", "N/Normalize"}, {"phase", phase}}, {{count, bound}, {count, INFINITY}});
}

MetricReading ReportedMetrics() {
  return MetricReading(
      {{.name = "normd_requests_total",
        .metric = {CounterSeries({{"code", "OK"}, {"method", "N/Normalize"}, {"norm", "rms_norm"}}, 90),
                   CounterSeries({{"code", "NOT_FOUND"}, {"method", "N/Normalize"}, {"norm", "none"}}, 10),
                   CounterSeries({{"code", "OK"}, {"method", "N/Describe"}, {"norm", "none"}}, 0)}},
       {.name = "normd_request_duration_seconds",
        .metric = {PhaseSeries("total", 0.0001, 100), PhaseSeries("decode", 5, 100)}},
       {.name = "normd_request_bytes_total", .metric = {CounterSeries({}, 20480)}},
       {.name = "normd_session_drift", .metric = {GaugeSeries({{"session", "<b>x"}, {"tenant", "vision"}}, 1.25)}},
       {.name = "normd_in_flight_bytes", .metric = {GaugeSeries({}, 1048576)}}});
}

// With everything counted in the last ten seconds.
std::vector<StatusTable> ReportTables(const StatusFacts& facts, const MetricReading& metrics) {
  return StatusTables(facts, metrics, {absl::Seconds(10), metrics});
}

std::vector<StatusTable> ReportTables() {
  return ReportTables({.facts = {{"version", "1.2.3"}},
                       .devices = {{"cpu", "avx3"}},
                       .limits = {{"bytes in flight", "normd_in_flight_bytes", 4194304, /*bytes=*/true}}},
                      ReportedMetrics());
}

std::vector<std::vector<std::string>> RowsOf(const std::string& title) {
  for (const StatusTable& table : ReportTables()) {
    if (table.title == title) return table.rows;
  }
  return {};
}

TEST(StatusReport, CountsRequestsWithTheirErrorsAndPercentiles) {
  EXPECT_THAT(RowsOf("Requests since the start"),
              ElementsAre(ElementsAre("N/Normalize", "100", "10", "50 us", "99 us")));
  EXPECT_THAT(RowsOf("Errors by code"), ElementsAre(ElementsAre("NOT_FOUND", "10")));
}

TEST(StatusReport, ShowsRatesAndPercentilesOfTheLastSeconds) {
  EXPECT_THAT(RowsOf("Over the last 10 s"),
              IsSupersetOf({ElementsAre("calls/s", "10"), ElementsAre("errors/s", "1"), ElementsAre("p50", "50 us"),
                            ElementsAre("p99.9", "99.9 us"), ElementsAre("received", "2 KiB/s"),
                            ElementsAre("in flight", "1 MiB")}));
  EXPECT_THAT(RowsOf("Requests over the last 10 s"),
              ElementsAre(ElementsAre("N/Normalize", "10", "1", "50 us", "99 us")));
}

TEST(StatusReport, ComparesUseWithLimits) {
  EXPECT_THAT(RowsOf("Limits"), ElementsAre(ElementsAre("bytes in flight", "1 MiB", "4 MiB", "25.0 %")));
}

TEST(StatusReport, BeginsWithProblemsInRed) {
  const std::vector<StatusTable> tables = ReportTables(
      {.facts = {{"version", "1.2.3"}}, .problems = {"the certificate has expired <now>"}}, MetricReading());
  EXPECT_THAT(StatusText(tables), StartsWith("Problems\n  the certificate has expired <now>\n\nServer\n"));
  const std::string page = StatusPage("serving", tables, "abc");
  EXPECT_THAT(page, HasSubstr("<main>\n<section class=\"alert\"><h2>Problems</h2>"));
  EXPECT_THAT(page, HasSubstr("expired &lt;now&gt;"));
}

TEST(StatusReport, SaysWhyConnectionsWereClosed) {
  const std::vector<StatusTable> tables = ReportTables(
      {}, MetricReading({{.name = "normd_connections_closed_total",
                          .metric = {CounterSeries({{"reason", "peer"}}, 8), CounterSeries({{"reason", "tls"}}, 0)}}}));
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0].title, "Connections closed by the server");
  EXPECT_THAT(tables[0].rows, ElementsAre(ElementsAre("peer", "8")));
}

TEST(StatusReport, LeavesOutTablesWithoutRows) {
  EXPECT_THAT(RowsOf("Waiting now"), ElementsAre());
  EXPECT_THAT(ReportTables({}, MetricReading()), ElementsAre());
}

TEST(StatusReport, IsTextInColumns) {
  const std::string text = StatusText(ReportTables());
  EXPECT_THAT(text, HasSubstr("Server\n  version  1.2.3\n\nRequests since the start\n"));
  EXPECT_THAT(text,
              HasSubstr("  method       calls  errors    p50    p99\n  N/Normalize    100      10  50 us  99 us\n"));
}

TEST(StatusReport, EscapesNamesOfSessionsInHtml) {
  const std::string page = StatusPage("serving", ReportTables(), "abc");
  EXPECT_THAT(page, HasSubstr("<td>vision</td><td>&lt;b&gt;x</td><td>1.25</td>"));
  EXPECT_THAT(page, Not(HasSubstr("<b>x")));
}

TEST(StatusReport, GivesThePageTheValuesOfTheFigures) {
  const std::string page = StatusPage("draining", ReportTables(), "abc");
  EXPECT_THAT(page, HasSubstr("<p data-value=\"2048\"><span>received</span><b>2 KiB/s</b><svg "));
  EXPECT_THAT(page, HasSubstr("class=\"draining\">draining</span>"));
}

}  // namespace
}  // namespace normd
