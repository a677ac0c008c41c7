#include "client/cli/args.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/cli/table.h"

namespace normd::client {
namespace {

constexpr absl::string_view kUsageUrl = "normd.usage";

const FlagSpec* FindFlag(const CommandSpec& command, absl::string_view name, bool is_letter) {
  for (const FlagSpec& flag : command.flags) {
    if (is_letter ? (flag.letter != '\0' && name == absl::string_view(&flag.letter, 1)) : flag.name == name) {
      return &flag;
    }
  }
  return nullptr;
}

absl::Status BadValue(absl::string_view flag, absl::string_view value, absl::string_view wanted) {
  return UsageError(absl::StrCat("--", flag, " ", value, ": must be ", wanted));
}

}  // namespace

absl::Status UsageError(absl::string_view message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kUsageUrl, absl::Cord());
  return status;
}

bool IsUsageError(const absl::Status& status) { return status.GetPayload(kUsageUrl).has_value(); }

std::optional<std::string> ParsedArgs::Get(absl::string_view flag) const {
  const auto it = std::find_if(flags_.rbegin(), flags_.rend(), [&](const auto& entry) { return entry.first == flag; });
  if (it == flags_.rend()) return std::nullopt;
  return it->second;
}

std::string ParsedArgs::GetOr(absl::string_view flag, absl::string_view fallback) const {
  return Get(flag).value_or(std::string(fallback));
}

std::vector<std::string> ParsedArgs::GetAll(absl::string_view flag) const {
  std::vector<std::string> out;
  for (const auto& [name, value] : flags_) {
    if (name == flag) out.push_back(value);
  }
  return out;
}

absl::StatusOr<std::optional<double>> ParsedArgs::Double(absl::string_view flag) const {
  const std::optional<std::string> text = Get(flag);
  if (!text.has_value()) return std::optional<double>();
  double value;
  if (!absl::SimpleAtod(*text, &value)) return BadValue(flag, *text, "a number");
  return std::optional<double>(value);
}

absl::StatusOr<std::optional<int64_t>> ParsedArgs::Int(absl::string_view flag) const {
  const std::optional<std::string> text = Get(flag);
  if (!text.has_value()) return std::optional<int64_t>();
  int64_t value;
  if (!absl::SimpleAtoi(*text, &value)) return BadValue(flag, *text, "an integer");
  return std::optional<int64_t>(value);
}

absl::StatusOr<std::vector<int64_t>> ParsedArgs::Ints(absl::string_view flag, char separator) const {
  std::vector<int64_t> out;
  const std::optional<std::string> text = Get(flag);
  if (!text.has_value()) return out;
  for (absl::string_view piece : absl::StrSplit(*text, separator)) {
    int64_t value;
    if (!absl::SimpleAtoi(piece, &value)) {
      return BadValue(flag, *text, absl::StrCat("integers joined by '", std::string(1, separator), "'"));
    }
    out.push_back(value);
  }
  return out;
}

absl::StatusOr<std::optional<absl::Duration>> ParsedArgs::Duration(absl::string_view flag) const {
  const std::optional<std::string> text = Get(flag);
  if (!text.has_value()) return std::optional<absl::Duration>();
  absl::Duration value;
  double seconds;
  if (absl::SimpleAtod(*text, &seconds)) {
    value = absl::Seconds(seconds);
  } else if (!absl::ParseDuration(*text, &value)) {
    return BadValue(flag, *text, "a duration such as 10s or 500ms");
  }
  if (value < absl::ZeroDuration()) return BadValue(flag, *text, "a duration that is not negative");
  return std::optional<absl::Duration>(value);
}

absl::StatusOr<ParsedArgs> ParseArgs(const CommandSpec& command, absl::Span<const std::string> arguments) {
  ParsedArgs out;
  bool flags_ended = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (flags_ended || argument.size() < 2 || argument[0] != '-') {
      out.operands_.push_back(argument);
      continue;
    }
    if (argument == "--") {
      flags_ended = true;
      continue;
    }
    const bool is_long = argument[1] == '-';
    std::string name = argument.substr(is_long ? 2 : 1);
    std::optional<std::string> value;
    if (const size_t equals = name.find('='); is_long && equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    std::replace(name.begin(), name.end(), '_', '-');
    if (name == "help" || (!is_long && name == "h")) {
      out.flags_.emplace_back("help", "");
      continue;
    }
    const FlagSpec* flag = FindFlag(command, name, !is_long);
    if (flag == nullptr) return UsageError(absl::StrCat("unknown flag ", argument));
    if (flag->value.empty()) {
      if (value.has_value()) return UsageError(absl::StrCat("--", flag->name, " takes no value"));
      value = "";
    } else if (!value.has_value()) {
      if (++i == arguments.size()) return UsageError(absl::StrCat("--", flag->name, " needs ", flag->value));
      value = arguments[i];
    }
    out.flags_.emplace_back(flag->name, *value);
  }
  const int count = static_cast<int>(out.operands_.size());
  if (!out.Has("help") && (count < command.min_operands || count > command.max_operands)) {
    return UsageError(count > command.max_operands
                          ? absl::StrCat("unexpected operand ", out.operands_[command.max_operands])
                          : absl::StrCat("needs ", command.operands));
  }
  return out;
}

std::string HelpText(absl::string_view program, const CommandSpec& command) {
  std::string out =
      absl::StrCat("Usage: ", program, command.name.empty() ? "" : " ", command.name,
                   command.operands.empty() ? "" : " ", command.operands, " [flags]\n\n", command.summary, "\n");
  if (!command.details.empty()) absl::StrAppend(&out, "\n", command.details, "\n");
  absl::StrAppend(&out, "\nFlags:\n");
  constexpr size_t kHelpColumn = 34;
  for (const FlagSpec& flag : command.flags) {
    std::string line =
        absl::StrCat("  ", flag.letter == '\0' ? "" : absl::StrCat("-", std::string(1, flag.letter), ", "), "--",
                     flag.name, flag.value.empty() ? "" : " ", flag.value);
    line.resize(std::max(kHelpColumn - 2, line.size()), ' ');
    const std::string indent(kHelpColumn, ' ');
    const std::vector<std::string> lines = WrapText(flag.help, 100 - kHelpColumn);
    for (size_t i = 0; i < lines.size(); ++i) absl::StrAppend(&out, i == 0 ? line + "  " : indent, lines[i], "\n");
  }
  absl::StrAppend(&out, "  -h, --help", std::string(kHelpColumn - 12, ' '), "this text\n");
  return out;
}

}  // namespace normd::client
