#include "server/admin/status_report.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "server/admin/exposition.h"
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

std::string SecondsText(std::optional<double> seconds) {
  if (!seconds.has_value()) return "-";
  if (*seconds < 1e-3) return absl::StrFormat("%.3g us", *seconds * 1e6);
  if (*seconds < 1) return absl::StrFormat("%.3g ms", *seconds * 1e3);
  return absl::StrFormat("%.3g s", *seconds);
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

StatusTable RequestsTable(const Exposition& metrics) {
  StatusTable table{.title = "Requests since the start", .headers = {"method", "calls", "errors", "p50", "p99"}};
  for (const std::string& method : metrics.LabelValues(kRequests, "method")) {
    const double calls = metrics.Sum(kRequests, {{"method", method}}).value_or(0);
    const double good = metrics.Sum(kRequests, {{"method", method}, {"code", "OK"}}).value_or(0);
    if (calls == 0) continue;
    const std::vector<LabelIs> total = {{"method", method}, {"phase", "total"}};
    table.rows.push_back({method, CountText(calls), CountText(calls - good),
                          SecondsText(metrics.Quantile(kDurations, 0.5, total)),
                          SecondsText(metrics.Quantile(kDurations, 0.99, total))});
  }
  return table;
}

// The counts of a metric by one of its labels, without those that are 0 and the one of `without`.
StatusTable CountsTable(const Exposition& metrics, std::string title, std::string_view name, std::string_view label,
                        std::string_view without = "", std::string counted = "requests") {
  StatusTable table{.title = std::move(title), .headers = {std::string(label), std::move(counted)}};
  for (const std::string& value : metrics.LabelValues(name, label)) {
    const double count = metrics.Sum(name, {{label, value}}).value_or(0);
    if (count > 0 && value != without) table.rows.push_back({value, CountText(count)});
  }
  return table;
}

StatusTable WaitingTable(const Exposition& metrics) {
  StatusTable table{.title = "Waiting now", .headers = {"for", "calls", "oldest"}};
  for (const Sample* waiting : metrics.Find("normd_waiting")) {
    const std::string_view stage = waiting->Label("stage");
    table.rows.push_back({std::string(stage), CountText(waiting->value),
                          SecondsText(metrics.Sum("normd_waiting_oldest_seconds", {{"stage", stage}}))});
  }
  return table;
}

StatusTable DriftTable(const Exposition& metrics) {
  StatusTable table{.title = "Drift of sessions", .headers = {"tenant", "session", "drift"}};
  for (const Sample* drift : metrics.Find("normd_session_drift")) {
    table.rows.push_back({std::string(drift->Label("tenant")), std::string(drift->Label("session")),
                          absl::StrFormat("%.3g", drift->value)});
  }
  return table;
}

StatusTable TotalsTable(const Exposition& metrics) {
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

StatusTable LimitsTable(const std::vector<StatusLimit>& limits, const Exposition& metrics) {
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

std::string TableHtml(const StatusTable& table) {
  std::string out =
      absl::StrCat(table.alert ? "<section class=\"alert\"><h2>" : "<section><h2>", EscapeHtml(table.title),
                   "</h2>\n<div class=\"scroll\"><table", table.words ? " class=\"words\"" : "", ">\n");
  if (!table.headers.empty()) out += RowHtml(table.headers, "th");
  for (const std::vector<std::string>& row : table.rows) out += RowHtml(row, "td");
  return out + "</table></div></section>\n";
}

}  // namespace

std::vector<StatusTable> StatusTables(const StatusFacts& facts, std::string_view metrics_text) {
  const Exposition metrics(metrics_text);
  std::vector<StatusTable> tables = {
      ProblemsTable(facts.problems),
      WordsTable("Server", facts.facts),
      RequestsTable(metrics),
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

std::string StatusTablesHtml(const std::vector<StatusTable>& tables) {
  std::string out;
  for (const StatusTable& table : tables) out += TableHtml(table);
  return out;
}

std::string StatusPage(const std::vector<StatusTable>& tables, std::string_view nonce) {
  return absl::StrReplaceAll(StatusPageTemplate(),
                             {{"{{nonce}}", std::string(nonce)}, {"{{tables}}", StatusTablesHtml(tables)}});
}

std::string StatusPagePolicy(std::string_view nonce) {
  const std::string source = absl::StrCat("'nonce-", std::string(nonce), "'");
  return absl::StrCat("default-src 'none'; connect-src 'self'; script-src ", source, "; style-src ", source,
                      "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
}

}  // namespace normd
