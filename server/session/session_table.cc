#include "server/session/session_table.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace normd {

std::string LabelText(const std::map<std::string, std::string>& labels) {
  std::string text = "\n";
  for (const auto& [key, value] : labels) absl::StrAppend(&text, key, "=", value, "\n");
  return text;
}

absl::StatusOr<SessionTable::Versions> SessionTable::Write(absl::Span<const RowChange> changes) {
  return Write([&changes] { return std::exchange(changes, {}); });
}

}  // namespace normd
