#include "server/base/error_reasons.h"

#include <span>

#include "kernels/base/strings.h"

namespace normd {
namespace {

std::string TableRow(std::string_view reason, std::string_view code, std::string_view meaning,
                     std::string_view remedy) {
  return Concat("| ", reason, " | ", code, " | ", meaning, " | ", remedy, " |\n");
}

}  // namespace

std::string ErrorsMarkdown() {
  std::string table = TableRow("reason", "code", "meaning", "what the caller does") + "|---|---|---|---|\n";
  for (const std::span<const ReasonRow> rows : {std::span<const ReasonRow>(kKernelReasons), {kServerReasons}}) {
    for (const ReasonRow& row : rows) {
      table += TableRow(Concat("`", row.name, "`"), absl::StatusCodeToString(row.code), row.meaning, row.remedy);
    }
  }
  return table + TableRow("the code's name", "any", "An error without a reason of its own, such as `INTERNAL`.",
                          "Act on the code; report INTERNAL.");
}

}  // namespace normd
