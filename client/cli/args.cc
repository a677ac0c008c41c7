#include "client/cli/args.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/cli/did_you_mean.h"
#include "client/cli/table.h"

namespace normd::client {
namespace {

constexpr absl::string_view kUsageUrl = "normd.usage";

std::vector<FlagSpec> WithHelp(const CommandSpec& command) {
  return Join(command.flags, {{"help", 'h', "", "this text"}});
}

absl::Status BadValue(absl::string_view flag, absl::string_view value, absl::string_view wanted) {
  return UsageError(absl::StrCat("--", flag, " ", value, ": must be ", wanted));
}

const FlagSpec* FindFlag(const std::vector<FlagSpec>& flags, absl::string_view name, bool is_long) {
  const auto it = std::find_if(flags.begin(), flags.end(), [&](const FlagSpec& flag) {
    return is_long ? flag.name == name : flag.letter != '\0' && flag.letter == name[0];
  });
  return it == flags.end() ? nullptr : &*it;
}

absl::Status UnknownFlag(const CommandSpec& command, absl::string_view written) {
  const absl::string_view name = written.substr(0, written.find('='));
  std::vector<std::string> names;
  for (const FlagSpec& flag : WithHelp(command)) names.push_back(absl::StrCat("--", flag.name));
  return UsageError(absl::StrCat("unknown flag ", name, DidYouMean(name, names)));
}

absl::Status CheckOperands(const CommandSpec& command, const std::vector<std::string>& operands) {
  const int count = static_cast<int>(operands.size());
  if (count < command.min_operands) return UsageError(absl::StrCat("needs ", command.operands));
  if (count <= command.max_operands) return absl::OkStatus();
  return UsageError(absl::StrCat("unexpected operand ", operands[command.max_operands]));
}

}  // namespace

std::vector<FlagSpec> Join(std::vector<FlagSpec> a, const std::vector<FlagSpec>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

absl::Status UsageError(absl::string_view message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kUsageUrl, absl::Cord());
  return status;
}

bool IsUsageError(const absl::Status& status) { return status.GetPayload(kUsageUrl).has_value(); }

std::optional<std::string> ParsedArgs::Get(absl::string_view flag) const {
  const auto it = flags_.find(flag);
  if (it == flags_.end()) return std::nullopt;
  return it->second.back();
}

std::string ParsedArgs::GetOr(absl::string_view flag, absl::string_view fallback) const {
  return Get(flag).value_or(std::string(fallback));
}

std::vector<std::string> ParsedArgs::GetAll(absl::string_view flag) const {
  const auto it = flags_.find(flag);
  return it == flags_.end() ? std::vector<std::string>() : it->second;
}

template <typename T, typename Parse>
absl::StatusOr<std::optional<T>> ParsedArgs::Read(absl::string_view flag, absl::string_view wanted, Parse parse) const {
  const std::optional<std::string> text = Get(flag);
  if (!text.has_value()) return std::optional<T>();
  T value;
  if (!parse(*text, &value)) return BadValue(flag, *text, wanted);
  return std::optional<T>(std::move(value));
}

absl::StatusOr<std::optional<double>> ParsedArgs::Double(absl::string_view flag) const {
  return Read<double>(flag, "a number", &absl::SimpleAtod);
}

absl::StatusOr<std::optional<int64_t>> ParsedArgs::Int(absl::string_view flag) const {
  return Read<int64_t>(flag, "an integer", &absl::SimpleAtoi<int64_t>);
}

absl::StatusOr<std::vector<int64_t>> ParsedArgs::Ints(absl::string_view flag, char separator) const {
  const std::string wanted = absl::StrCat("integers joined by '", std::string(1, separator), "'");
  const auto parse = [separator](absl::string_view text, std::vector<int64_t>* out) {
    const std::vector<absl::string_view> pieces = absl::StrSplit(text, separator);
    return std::all_of(pieces.begin(), pieces.end(),
                       [out](absl::string_view piece) { return absl::SimpleAtoi(piece, &out->emplace_back()); });
  };
  absl::StatusOr<std::optional<std::vector<int64_t>>> values = Read<std::vector<int64_t>>(flag, wanted, parse);
  if (!values.ok()) return values.status();
  return (*std::move(values)).value_or(std::vector<int64_t>());
}

absl::StatusOr<std::optional<absl::Duration>> ParsedArgs::Duration(absl::string_view flag) const {
  return Read<absl::Duration>(flag, "a duration such as 10s or 500ms, not negative",
                              [](absl::string_view text, absl::Duration* out) {
                                double seconds;
                                const bool plain = absl::SimpleAtod(text, &seconds);
                                if (plain) *out = absl::Seconds(seconds);
                                return (plain || absl::ParseDuration(text, out)) && *out >= absl::ZeroDuration();
                              });
}

absl::StatusOr<ParsedArgs> ParseArgs(const CommandSpec& command, absl::Span<const std::string> arguments) {
  const std::vector<FlagSpec> flags = WithHelp(command);
  ParsedArgs out;
  bool flags_ended = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!flags_ended && argument == "--") {
      flags_ended = true;
      continue;
    }
    if (flags_ended || argument.size() < 2 || argument[0] != '-') {
      out.operands_.push_back(argument);
      flags_ended |= command.flags_first;
      continue;
    }
    const bool is_long = argument[1] == '-';
    const size_t name_end = is_long ? std::min(argument.find('='), argument.size()) : 2;
    const bool has_value = name_end < argument.size();
    const std::string name =
        absl::StrReplaceAll(argument.substr(is_long ? 2 : 1, name_end - (is_long ? 2 : 1)), {{"_", "-"}});
    const FlagSpec* flag = FindFlag(flags, name, is_long);
    if (flag == nullptr) return UnknownFlag(command, argument);
    const bool is_switch = flag->value.empty();
    if (is_switch && has_value) return UsageError(absl::StrCat("--", flag->name, " takes no value"));
    if (!is_switch && !has_value && ++i == arguments.size()) {
      return UsageError(absl::StrCat("--", flag->name, " needs ", flag->value));
    }
    std::vector<std::string>& values = out.flags_[std::string(flag->name)];
    values.push_back(is_switch ? "" : has_value ? argument.substr(name_end + (is_long ? 1 : 0)) : arguments[i]);
  }
  if (out.Has("help")) return out;
  if (absl::Status status = CheckOperands(command, out.operands_); !status.ok()) return status;
  return out;
}

std::string HelpText(absl::string_view program, const CommandSpec& command) {
  std::string out =
      absl::StrCat("Usage: ", program, command.name.empty() ? "" : " ", command.name,
                   command.operands.empty() ? "" : " ", command.operands, " [flags]\n\n", command.summary, "\n");
  if (!command.details.empty()) absl::StrAppend(&out, "\n", command.details, "\n");
  absl::StrAppend(&out, "\nFlags:\n");
  constexpr size_t kHelpColumn = 34;
  for (const FlagSpec& flag : WithHelp(command)) {
    std::string line =
        absl::StrCat("  ", flag.letter == '\0' ? "" : absl::StrCat("-", std::string(1, flag.letter), ", "), "--",
                     flag.name, flag.value.empty() ? "" : " ", flag.value);
    line.resize(std::max(kHelpColumn - 2, line.size()), ' ');
    const std::string indent(kHelpColumn, ' ');
    const std::vector<std::string> lines = WrapText(flag.help, 100 - kHelpColumn);
    for (size_t i = 0; i < lines.size(); ++i) absl::StrAppend(&out, i == 0 ? line + "  " : indent, lines[i], "\n");
  }
  return out;
}

}  // namespace normd::client
