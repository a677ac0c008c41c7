#include "server/admin/status_report.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "server/admin/status_page.h"

namespace normd {
namespace {

constexpr std::string_view kRequests = "normd_requests_total";
constexpr std::string_view kDurations = "normd_request_duration_seconds";

std::string CountText(double count) { return absl::StrFormat("%.0f", count); }

std::string BytesText(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return unit == 0 || bytes >= 100 ? absl::StrFormat("%.0f %s", bytes, kUnits[unit])
                                   : absl::StrFormat("%.3g %s", bytes, kUnits[unit]);
}

std::string RateText(double rate) {
  return rate >= 100 ? absl::StrFormat("%.0f", rate) : absl::StrFormat("%.3g", rate);
}

std::string SecondsText(std::optional<double> seconds) {
  if (!seconds.has_value()) return "-";
  if (*seconds < 1e-3) return absl::StrFormat("%.3g us", *seconds * 1e6);
  if (*seconds < 1) return absl::StrFormat("%.3g ms", *seconds * 1e3);
  return absl::StrFormat("%.3g s", *seconds);
}

double SecondsOf(const RecentCounts& recent) { return std::max(absl::ToDoubleSeconds(recent.duration), 1e-3); }

std::string RecentTitle(const char* begin, const RecentCounts& recent) {
  return absl::StrFormat("%s the last %.0f s", begin, std::max(1.0, SecondsOf(recent)));
}

StatusTable WordsTable(std::string title, const std::vector<std::pair<std::string, std::string>>& lines) {
  StatusTable table{.title = std::move(title), .headers = {}, .rows = {}, .words = true};
  for (const auto& [name, value] : lines) table.rows.push_back({name, value});
  return table;
}

StatusTable ProblemsTable(const std::vector<std::string>& problems) {
  StatusTable table{.title = "Problems", .headers = {}, .rows = {}, .words = true, .alert = true};
  for (const std::string& problem : problems) table.rows.push_back({problem});
  return table;
}

// Rates and percentiles of the recent counts, and the gauges of now.
StatusTable FiguresTable(const RecentCounts& recent) {
  StatusTable table{.title = RecentTitle("Over", recent), .headers = {}, .rows = {}, .words = true};
  if (recent.counts.Find(kRequests).empty()) return table;
  const auto add = [&table](std::string name, std::string text, double value) {
    table.rows.push_back({std::move(name), std::move(text)});
    table.values.push_back(value);
  };
  const auto sum = [&recent](std::string_view metric) { return recent.counts.Sum(metric).value_or(0); };
  const auto rate = [&](std::string_view metric) { return sum(metric) / SecondsOf(recent); };
  const auto add_count = [&add](std::string name, double count) { add(std::move(name), RateText(count), count); };
  const auto add_bytes = [&add](std::string name, double bytes, const char* per = "") {
    add(std::move(name), absl::StrCat(BytesText(bytes), per), bytes);
  };
  const double answered = recent.counts.Sum(kRequests, {{"code", "OK"}}).value_or(0) / SecondsOf(recent);
  add_count("calls/s", rate(kRequests));
  add_count("errors/s", rate(kRequests) - answered);
  for (const auto& [name, q] : {std::pair{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}}) {
    const std::optional<double> latency = recent.counts.Quantile(kDurations, q, {{"phase", "total"}});
    add(name, SecondsText(latency), latency.value_or(0));
  }
  add_bytes("received", rate("normd_request_bytes_total"), "/s");
  add_bytes("sent", rate("normd_response_bytes_total"), "/s");
  add_count("groups/s", rate("normd_rows_total"));
  add_count("cores busy", rate("process_cpu_seconds_total"));
  add_bytes("in flight", sum("normd_in_flight_bytes"));
  add_count("sessions", sum("normd_sessions"));
  add_count("connections", sum("normd_connections"));
  add_bytes("memory", sum("process_resident_memory_bytes"));
  return table;
}

// Calls and errors are divided by `seconds`.
StatusTable RequestsTable(const MetricReading& counts, std::string title, const std::string& per, double seconds) {
  StatusTable table{.title = std::move(title), .headers = {"method", "calls" + per, "errors" + per, "p50", "p99"}};
  for (const std::string& method : counts.LabelValues(kRequests, "method")) {
    const double calls = counts.Sum(kRequests, {{"method", method}}).value_or(0);
    const double good = counts.Sum(kRequests, {{"method", method}, {"code", "OK"}}).value_or(0);
    if (calls == 0) continue;
    const std::vector<LabelIs> total = {{"method", method}, {"phase", "total"}};
    table.rows.push_back({method, RateText(calls / seconds), RateText((calls - good) / seconds),
                          SecondsText(counts.Quantile(kDurations, 0.5, total)),
                          SecondsText(counts.Quantile(kDurations, 0.99, total))});
  }
  return table;
}

// The counts of a metric by one of its labels, without those that are 0 and the one of `without`.
StatusTable CountsTable(const MetricReading& metrics, std::string title, std::string_view name, std::string_view label,
                        std::string_view without = "", std::string counted = "requests") {
  StatusTable table{.title = std::move(title), .headers = {std::string(label), std::move(counted)}};
  for (const std::string& value : metrics.LabelValues(name, label)) {
    const double count = metrics.Sum(name, {{label, value}}).value_or(0);
    if (count > 0 && value != without) table.rows.push_back({value, CountText(count)});
  }
  return table;
}

StatusTable WaitingTable(const MetricReading& metrics) {
  StatusTable table{.title = "Waiting now", .headers = {"for", "calls", "oldest"}};
  for (const MetricSeries* waiting : metrics.Find("normd_waiting")) {
    const std::string_view stage = LabelOf(*waiting, "stage");
    table.rows.push_back({std::string(stage), CountText(waiting->gauge.value),
                          SecondsText(metrics.Sum("normd_waiting_oldest_seconds", {{"stage", stage}}))});
  }
  return table;
}

StatusTable DriftTable(const MetricReading& metrics) {
  StatusTable table{.title = "Drift of sessions", .headers = {"tenant", "session", "drift"}};
  for (const MetricSeries* drift : metrics.Find("normd_session_drift")) {
    table.rows.push_back({std::string(LabelOf(*drift, "tenant")), std::string(LabelOf(*drift, "session")),
                          absl::StrFormat("%.3g", drift->gauge.value)});
  }
  return table;
}

StatusTable TotalsTable(const MetricReading& metrics) {
  struct Row {
    const char* title;
    const char* metric;
    bool bytes;
  };
  constexpr Row kRows[] = {{"bytes received", "normd_request_bytes_total", true},
                           {"bytes sent", "normd_response_bytes_total", true},
                           {"statistics groups normalised", "normd_rows_total", false},
                           {"calls with NaN or Inf", "normd_not_finite_total", false},
                           {"connections accepted", "normd_connections_accepted_total", false},
                           {"session rows written", "normd_store_rows_total", false},
                           {"resident memory", "process_resident_memory_bytes", true},
                           {"threads", "process_threads", false}};
  StatusTable table{.title = "Traffic and process", .headers = {}};
  for (const Row& row : kRows) {
    const std::optional<double> value = metrics.Sum(row.metric);
    if (value.has_value()) table.rows.push_back({row.title, row.bytes ? BytesText(*value) : CountText(*value)});
  }
  return table;
}

StatusTable LimitsTable(const std::vector<StatusLimit>& limits, const MetricReading& metrics) {
  StatusTable table{.title = "Limits", .headers = {"", "used", "limit", "share"}};
  for (const StatusLimit& limit : limits) {
    const double used = metrics.Sum(limit.metric).value_or(0);
    table.rows.push_back({limit.name, limit.bytes ? BytesText(used) : CountText(used),
                          limit.bytes ? BytesText(limit.limit) : CountText(limit.limit),
                          limit.limit > 0 ? absl::StrFormat("%.1f %%", 100 * used / limit.limit) : "-"});
  }
  return table;
}

std::string EscapeHtml(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string RowHtml(const std::vector<std::string>& cells, const char* tag) {
  std::string out = "<tr>";
  for (const std::string& cell : cells) {
    // A place for a line's end after each slash, for narrow pages.
    const std::string text = absl::StrReplaceAll(EscapeHtml(cell), {{"/", "/<wbr>"}});
    absl::StrAppend(&out, "<", tag, ">", text, "</", tag, ">");
  }
  return out + "</tr>\n";
}

// The script fills in <polyline> and <small>.
std::string FiguresHtml(const StatusTable& table) {
  std::string out = absl::StrCat("<section class=\"figures\"><h2>", EscapeHtml(table.title), "</h2>\n<div>\n");
  for (size_t i = 0; i < table.rows.size(); ++i) {
    absl::StrAppend(&out, "<p data-value=\"", table.values[i], "\"><span>", table.rows[i][0], "</span><b>",
                    table.rows[i][1], "</b><svg viewBox=\"0 0 149 30\" preserveAspectRatio=\"none\"><polyline/></svg>",
                    "<small></small></p>\n");
  }
  return out + "</div></section>\n";
}

std::string TableHtml(const StatusTable& table) {
  if (!table.values.empty()) return FiguresHtml(table);
  std::string out =
      absl::StrCat(table.alert ? "<section class=\"alert\"><h2>" : "<section><h2>", EscapeHtml(table.title),
                   "</h2>\n<div class=\"scroll\"><table", table.words ? " class=\"words\"" : "", ">\n");
  if (!table.headers.empty()) out += RowHtml(table.headers, "th");
  for (const std::vector<std::string>& row : table.rows) out += RowHtml(row, "td");
  return out + "</table></div></section>\n";
}

}  // namespace

std::vector<StatusTable> StatusTables(const StatusFacts& facts, const MetricReading& metrics,
                                      const RecentCounts& recent) {
  std::vector<StatusTable> tables = {
      ProblemsTable(facts.problems),
      FiguresTable(recent),
      RequestsTable(recent.counts, RecentTitle("Requests over", recent), "/s", SecondsOf(recent)),
      WordsTable("Server", facts.facts),
      RequestsTable(metrics, "Requests since the start", "", 1),
      CountsTable(metrics, "Errors by code", kRequests, "code", "OK"),
      CountsTable(metrics, "Refusals by reason", "normd_refusals_total", "reason"),
      CountsTable(metrics, "Connections closed by the server", "normd_connections_closed_total", "reason", "",
                  "connections"),
      CountsTable(metrics, "Calls refused by the transport", "normd_transport_refusals_total", "reason"),
      WaitingTable(metrics),
      LimitsTable(facts.limits, metrics),
      DriftTable(metrics),
      TotalsTable(metrics),
      WordsTable("Devices", facts.devices)};
  tables.erase(
      std::remove_if(tables.begin(), tables.end(), [](const StatusTable& table) { return table.rows.empty(); }),
      tables.end());
  return tables;
}

std::string StatusText(const std::vector<StatusTable>& tables) {
  std::string out;
  for (const StatusTable& table : tables) {
    std::vector<std::vector<std::string>> lines = table.rows;
    if (!table.headers.empty()) lines.insert(lines.begin(), table.headers);
    std::vector<size_t> widths;
    for (const std::vector<std::string>& line : lines) {
      widths.resize(std::max(widths.size(), line.size()));
      for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
    }
    absl::StrAppend(&out, out.empty() ? "" : "\n", table.title, "\n");
    for (const std::vector<std::string>& line : lines) {
      for (size_t i = 0; i < line.size(); ++i) {
        const std::string padding(widths[i] - line[i].size(), ' ');
        const bool left = i == 0 || table.words;
        absl::StrAppend(&out, "  ", left ? line[i] : padding,
                        left && i + 1 == line.size() ? ""
                        : left                       ? padding
                                                     : line[i]);
      }
      out += "\n";
    }
  }
  return out;
}

std::string StatusPage(std::string_view state, const std::vector<StatusTable>& tables, std::string_view nonce) {
  std::string tables_html;
  for (const StatusTable& table : tables) tables_html += TableHtml(table);
  return absl::StrReplaceAll(
      StatusPageTemplate(),
      {{"{{nonce}}", std::string(nonce)}, {"{{state}}", EscapeHtml(std::string(state))}, {"{{tables}}", tables_html}});
}

std::string StatusPagePolicy(std::string_view nonce) {
  const std::string source = absl::StrCat("'nonce-", std::string(nonce), "'");
  return absl::StrCat("default-src 'none'; connect-src 'self'; script-src ", source, "; style-src ", source,
                      "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
}

}  // namespace normd
