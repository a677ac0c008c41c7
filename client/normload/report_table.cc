#include "absl/strings/str_cat.h"
#include "client/cli/table.h"
#include "client/normload/report.h"

namespace normd::client {
namespace {

std::string GridText(const Grid& grid, int width) {
  std::vector<Table::Column> columns;
  for (size_t i = 0; i < grid.rows[0].size(); ++i) {
    columns.push_back({grid.rows[0][i], i < grid.left_columns ? Align::kLeft : Align::kRight});
  }
  Table table(std::move(columns));
  for (size_t i = 1; i < grid.rows.size(); ++i) table.AddRow(grid.rows[i]);
  return absl::StrCat("\n", grid.title, grid.title.empty() ? "" : "\n", table.Render(width));
}

std::string ErrorsText(const CallSummary& calls) {
  if (calls.errors.empty()) return "";
  std::string out;
  for (const auto& [code, count] : calls.errors) absl::StrAppend(&out, "  ", code, ": ", count, "\n");
  absl::StrAppend(&out, "  first: ", calls.first_error, "\n");
  return out;
}

}  // namespace

std::string ReportText(const Report& report, int width) {
  std::string out;
  for (const auto& lines : {AboutLines(report), SetupLines(report)}) {
    for (const auto& [name, value] : lines) absl::StrAppend(&out, name, ": ", value, "\n");
  }
  for (const Grid& grid : ReportGrids(report, /*every_entry=*/false)) absl::StrAppend(&out, GridText(grid, width));
  if (const std::string few = FewCallsText(report); !few.empty()) absl::StrAppend(&out, few, "\n");
  for (const RunSummary& run : report.runs) absl::StrAppend(&out, ErrorsText(run.total));
  out += "\n";
  if (report.sweep.has_value()) absl::StrAppend(&out, KneeText(report), "\n");
  for (const std::string& warning : Warnings(report)) absl::StrAppend(&out, "warning: ", warning, "\n");
  return out;
}

}  // namespace normd::client
