#include "server/admin/status_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace normd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kMetrics[] =
    "normd_requests_total{method=\"N/Normalize\",norm=\"rms_norm\",code=\"OK\"} 90\n"
    "normd_requests_total{method=\"N/Normalize\",norm=\"none\",code=\"NOT_FOUND\"} 10\n"
    "normd_requests_total{method=\"N/Describe\",norm=\"none\",code=\"OK\"} 0\n"
    "normd_request_duration_seconds_bucket{method=\"N/Normalize\",phase=\"total\",le=\"0.0001\"} 100\n"
    "normd_request_duration_seconds_bucket{method=\"N/Normalize\",phase=\"total\",le=\"+Inf\"} 100\n"
    "normd_request_duration_seconds_bucket{method=\"N/Normalize\",phase=\"decode\",le=\"5\"} 100\n"
    "normd_session_drift{session=\"<b>x\",tenant=\"vision\"} 1.25\n"
    "normd_in_flight_bytes 1048576\n";

std::vector<StatusTable> Tables() {
  return StatusTables({.facts = {{"version", "1.2.3"}},
                       .devices = {{"cpu", "avx3"}},
                       .limits = {{"bytes in flight", "normd_in_flight_bytes", 4194304, /*bytes=*/true}}},
                      kMetrics);
}

std::vector<std::vector<std::string>> RowsOf(const std::string& title) {
  for (const StatusTable& table : Tables()) {
    if (table.title == title) return table.rows;
  }
  return {};
}

TEST(StatusReport, CountsRequestsWithTheirErrorsAndPercentiles) {
  EXPECT_THAT(RowsOf("Requests since the start"),
              ElementsAre(ElementsAre("N/Normalize", "100", "10", "50 us", "99 us")));
  EXPECT_THAT(RowsOf("Errors by code"), ElementsAre(ElementsAre("NOT_FOUND", "10")));
}

TEST(StatusReport, ComparesLimitsWithWhatIsUsed) {
  EXPECT_THAT(RowsOf("Limits"), ElementsAre(ElementsAre("bytes in flight", "1 MiB", "4 MiB", "25.0 %")));
}

TEST(StatusReport, BeginsWithProblemsInRed) {
  const std::vector<StatusTable> tables =
      StatusTables({.facts = {{"version", "1.2.3"}}, .problems = {"the certificate has expired <now>"}}, kMetrics);
  EXPECT_THAT(StatusText(tables), StartsWith("Problems\n  the certificate has expired <now>\n\nServer\n"));
  EXPECT_THAT(StatusTablesHtml(tables), StartsWith("<section class=\"alert\"><h2>Problems</h2>"));
  EXPECT_THAT(StatusTablesHtml(tables), HasSubstr("expired &lt;now&gt;"));
}

TEST(StatusReport, SaysWhyConnectionsWereClosed) {
  const std::vector<StatusTable> tables = StatusTables(
      {}, "normd_connections_closed_total{reason=\"peer\"} 8\nnormd_connections_closed_total{reason=\"tls\"} 0\n");
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0].title, "Connections closed by the server");
  EXPECT_THAT(tables[0].rows, ElementsAre(ElementsAre("peer", "8")));
}

TEST(StatusReport, LeavesOutTablesOfWhatIsNotMeasured) {
  EXPECT_THAT(RowsOf("Waiting now"), ElementsAre());
  EXPECT_THAT(StatusTables({}, ""), ElementsAre());
}

TEST(StatusReport, IsTextInColumns) {
  const std::string text = StatusText(Tables());
  EXPECT_THAT(text, HasSubstr("Server\n  version  1.2.3\n\nRequests since the start\n"));
  EXPECT_THAT(text,
              HasSubstr("  method       calls  errors    p50    p99\n  N/Normalize    100      10  50 us  99 us\n"));
}

TEST(StatusReport, EscapesNamesOfSessionsInHtml) {
  const std::string page = StatusPage(Tables(), "abc");
  EXPECT_THAT(page, HasSubstr("<td>vision</td><td>&lt;b&gt;x</td><td>1.25</td>"));
  EXPECT_THAT(page, Not(HasSubstr("<b>x")));
}

}  // namespace
}  // namespace normd
