#include "server/wiring/stats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/wiring/metrics.h"

namespace normd {
namespace {

// Every figure has a value that no other has, and none is 0.
Stats DifferentStats() {
  Stats stats;
  stats.store = {.sessions = 101,
                 .bytes = 102,
                 .resident_sessions = 103,
                 .resident_bytes = 104,
                 .loads = 106,
                 .evictions = 107,
                 .expired = 108,
                 .groups = 109,
                 .rows = 110,
                 .conflicts = 111,
                 .damaged = 112,
                 .log_bytes = 115,
                 .file_damaged = true,
                 .failed_groups = 114};
  stats.connections = {.open = 201,
                       .accepted = 202,
                       .without_call = 211,
                       .refused = {203, 204, 205, 206, 207, 209, 210, 208, 214, 215, 216, 217, 218, 212, 213}};
  stats.certificates = {.expiry = absl::FromUnixSeconds(302), .reloads = 303, .failed_reloads = 304};
  stats.queues = {.longest_callback = absl::Milliseconds(250),
                  .slow_callbacks = 301,
                  .queues = 312,
                  .busy = absl::Seconds(313),
                  .calls = 314,
                  .watchers = 311,
                  .idle_streams_ended = 319,
                  .refused = {315, 316, 317, 318, 320},
                  .resets = {321, 322, 323, 324, 325, 326, 327, 328, 329, 330, 331, 332, 333, 334, 335},
                  .waiting_bytes = 336,
                  .at_stream_limit = 337};
  stats.in_flight_bytes = 305;
  stats.waiting = {WaitStats{701, absl::Seconds(702)}, WaitStats{703, absl::Seconds(704)},
                   WaitStats{705, absl::Seconds(706)}, WaitStats{707, absl::Seconds(708)},
                   WaitStats{709, absl::Seconds(710)}};
  stats.undecided = {1001, 1002};
  stats.access.denied = {601, 602, 603, 604, 605, 606};
  stats.access.files = {{{.loads = 611, .failures = 612, .stale = 613}, {.loads = 621, .failures = 622, .stale = 623}}};
  stats.spans = {.exported = 801, .dropped = 802};
  stats.config = {.reloads = 901, .failures = 902, .stale = 903};
  stats.regions = {.regions = 401, .bytes = 402};
  stats.process = {.resident_bytes = 501,
                   .open_fds = 502,
                   .max_fds = 503,
                   .threads = 504,
                   .cpu_seconds = 0.5,
                   .start_time_seconds = 505};
  return stats;
}

// One series of a row.
struct Series {
  const StatRow* row;
  size_t value;      // of the label
  std::string name;  // as the text has it
};

std::vector<Series> AllSeries() {
  std::vector<Series> all;
  for (const absl::Span<const StatRow> rows :
       {BackendStatRows(), StoreStatRows(), ListenerStatRows(), ProcessStatRows()}) {
    for (const StatRow& row : rows) {
      const std::string name(row.name);
      if (row.label.name.empty()) all.push_back({&row, 0, name});
      for (size_t i = 0; i < row.label.values.size(); ++i) {
        all.push_back(
            {&row, i, name + "{" + std::string(row.label.name) + "=\"" + std::string(row.label.values[i]) + "\"}"});
      }
    }
  }
  return all;
}

// What the text says of each series.
std::map<std::string, double> Values(const std::string& text) {
  std::map<std::string, double> values;
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  for (const std::string& line : lines) {
    const size_t space = line.rfind(' ');
    if (line[0] != '#') values[line.substr(0, space)] = std::stod(line.substr(space + 1));
  }
  return values;
}

TEST(Stats, EveryRowHasItsSeriesAfterAScrapeEachWithAFigureOfItsOwn) {
  const Stats stats = DifferentStats();
  Metrics metrics{MetricsOptions()};
  metrics.SetStats(stats);
  const std::map<std::string, double> values = Values(metrics.Text());
  std::map<double, std::string> read_by;
  for (const Series& series : AllSeries()) {
    const double stat = series.row->read(stats, series.value);
    EXPECT_NE(stat, 0) << series.name << ": its stat has no value in this test";
    ASSERT_TRUE(values.count(series.name) == 1) << series.name << " has no series";
    EXPECT_EQ(values.at(series.name), stat) << series.name;
    const auto [other, is_new] = read_by.emplace(stat, series.name);
    EXPECT_TRUE(is_new) << series.name << " shows what " << other->second << " shows";
  }
  EXPECT_EQ(read_by.size(), AllSeries().size());
}

TEST(Stats, EveryRowIsListedOnceWithItsTypeItsLabelAndItsHelp) {
  const std::vector<MetricInfo> listed = AllMetrics();
  for (const Series& series : AllSeries()) {
    const StatRow& row = *series.row;
    const auto is_row = [&row](const MetricInfo& info) { return info.name == row.name; };
    ASSERT_EQ(std::count_if(listed.begin(), listed.end(), is_row), 1) << row.name;
    const MetricInfo& info = *std::find_if(listed.begin(), listed.end(), is_row);
    EXPECT_EQ(info.type, row.type) << row.name;
    EXPECT_EQ(info.labels, row.label.name) << row.name;
    EXPECT_EQ(info.help, row.help) << row.name;
  }
}

TEST(Stats, GaugesFollowAndCountersNeverFall) {
  const Stats stats = DifferentStats();
  Metrics metrics{MetricsOptions()};
  metrics.SetStats(stats);
  metrics.SetStats(stats);
  metrics.SetStats(Stats());
  const std::map<std::string, double> values = Values(metrics.Text());
  for (const Series& series : AllSeries()) {
    const bool falls = series.row->type == MetricType::kGauge;
    EXPECT_EQ(values.at(series.name), falls ? 0 : series.row->read(stats, series.value)) << series.name;
  }
}

TEST(Stats, ARowShowsTheFigureThatItsNameSays) {
  Metrics metrics{MetricsOptions()};
  metrics.SetStats(DifferentStats());
  const std::map<std::string, double> values = Values(metrics.Text());
  const std::map<std::string, double> expected = {{"normd_undecided_elements_total{rung=\"pairs\"}", 1001},
                                                  {"normd_undecided_elements_total{rung=\"integers\"}", 1002},
                                                  {"normd_sessions", 101},
                                                  {"normd_session_bytes", 102},
                                                  {"normd_resident_sessions", 103},
                                                  {"normd_resident_session_bytes", 104},
                                                  {"normd_denied_total{reason=\"no_credentials\"}", 601},
                                                  {"normd_denied_total{reason=\"method\"}", 606},
                                                  {"normd_rules_loads_total{file=\"tokens\"}", 611},
                                                  {"normd_rules_failures_total{file=\"policy\"}", 622},
                                                  {"normd_rules_stale{file=\"policy\"}", 623},
                                                  {"normd_session_loads_total", 106},
                                                  {"normd_session_evictions_total", 107},
                                                  {"normd_session_expiries_total", 108},
                                                  {"normd_store_rows_total", 110},
                                                  {"normd_store_conflicts_total", 111},
                                                  {"normd_store_damaged_total", 112},
                                                  {"normd_store_log_bytes", 115},
                                                  {"normd_store_file_damaged", 1},
                                                  {"normd_store_failed_groups_total", 114},
                                                  {"normd_in_flight_bytes", 305},
                                                  {"normd_waiting{stage=\"reading\"}", 701},
                                                  {"normd_waiting_oldest_seconds{stage=\"reading\"}", 702},
                                                  {"normd_waiting{stage=\"turn\"}", 703},
                                                  {"normd_waiting{stage=\"device\"}", 705},
                                                  {"normd_waiting{stage=\"store_change\"}", 707},
                                                  {"normd_waiting_oldest_seconds{stage=\"store_read\"}", 710},
                                                  {"normd_calls", 314},
                                                  {"normd_idle_streams_ended_total", 319},
                                                  {"normd_transport_refusals_total{reason=\"not_grpc\"}", 315},
                                                  {"normd_transport_refusals_total{reason=\"compressed\"}", 318},
                                                  {"normd_queues", 312},
                                                  {"normd_queue_busy_seconds_total", 313},
                                                  {"normd_connections", 201},
                                                  {"normd_connections_accepted_total", 202},
                                                  {"normd_connections_closed_total{reason=\"total\"}", 203},
                                                  {"normd_connections_closed_total{reason=\"peer\"}", 204},
                                                  {"normd_connections_closed_total{reason=\"plaintext\"}", 209},
                                                  {"normd_connections_closed_total{reason=\"tls\"}", 210},
                                                  {"normd_connections_closed_total{reason=\"flood\"}", 208},
                                                  {"normd_connections_closed_total{reason=\"made_room\"}", 212},
                                                  {"normd_connections_closed_total{reason=\"left\"}", 213},
                                                  {"normd_tls_connections_without_call_total", 211},
                                                  {"normd_tls_certificate_expiry_timestamp_seconds", 302},
                                                  {"normd_tls_reloads_total", 303},
                                                  {"normd_tls_reload_failures_total", 304},
                                                  {"normd_config_reloads_total", 901},
                                                  {"normd_config_reload_failures_total", 902},
                                                  {"normd_config_stale", 903},
                                                  {"normd_queue_callback_longest_seconds", 0.25},
                                                  {"normd_queue_callbacks_slow_total", 301},
                                                  {"normd_shared_memory_regions", 401},
                                                  {"normd_shared_memory_bytes", 402},
                                                  {"process_resident_memory_bytes", 501},
                                                  {"process_open_fds", 502},
                                                  {"process_max_fds", 503},
                                                  {"process_threads", 504},
                                                  {"process_cpu_seconds_total", 0.5},
                                                  {"process_start_time_seconds", 505}};
  for (const auto& [name, value] : expected) {
    ASSERT_TRUE(values.count(name) == 1) << name;
    EXPECT_EQ(values.at(name), value) << name;
  }
}

}  // namespace
}  // namespace normd
