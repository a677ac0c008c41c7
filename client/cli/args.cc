#include "client/cli/args.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/cli/table.h"
#include "proto/text/nearest_name.h"

namespace normd::client {
namespace {

constexpr absl::string_view kUsageUrl = "normd.usage";
constexpr size_t kHelpWidth = 80;

void Declare(const FlagSpec& flag, CLI::App& app) {
  std::string names = absl::StrCat("--", flag.name);
  if (flag.letter != '\0') absl::StrAppend(&names, ",-", std::string(1, flag.letter));
  const std::string underscored = absl::StrReplaceAll(flag.name, {{"-", "_"}});
  if (underscored != flag.name) absl::StrAppend(&names, ",--", underscored);
  (flag.value.empty() ? app.add_flag(names) : app.add_option(names))
      ->type_name(std::string(flag.value))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

// CLI11 2.1 reads the argument after "--filter=" as the value. A NUL, which no argument contains, stands for the empty
// value while CLI11 parses.
constexpr absl::string_view kEmptyValue("\0", 1);

// CLI11 takes arguments in reverse order.
std::vector<std::string> ForParser(absl::Span<const std::string> arguments) {
  std::vector<std::string> out(arguments.rbegin(), arguments.rend());
  for (std::string& argument : out) {
    const bool empty = absl::StartsWith(argument, "--") && argument.find('=') == argument.size() - 1;
    if (empty) absl::StrAppend(&argument, kEmptyValue);
  }
  return out;
}

std::vector<std::string> FromParser(std::vector<std::string> values) {
  for (std::string& value : values) value = std::string(absl::StripSuffix(value, kEmptyValue));
  return values;
}

constexpr char kOperands[] = "operands";  // the name of the CLI11 option that takes the operands

// No exception of CLI11 leaves this function.
absl::Status Parse(const CommandSpec& command, absl::Span<const std::string> arguments, CLI::App& app) {
  try {
    app.set_help_flag();  // --help is declared like any other flag
    app.allow_extras();   // UnknownFlag reports extras, and says more than CLI11
    app.positionals_at_end(command.flags_first);
    for (const FlagSpec& flag : AllFlags(command)) Declare(flag, app);
    app.add_option(kOperands)
        ->expected(static_cast<int>(arguments.size()))
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    std::vector<std::string> remaining = ForParser(arguments);
    app.parse(remaining);
    return absl::OkStatus();
  } catch (const CLI::Error& error) {  // "--eps: 1 required E missing" if the line ends with --eps
    return UsageError(absl::StrReplaceAll(error.what(), {{": 1 required ", " needs "}, {" missing", ""}}));
  }
}

absl::Status UnknownFlag(const CommandSpec& command, absl::string_view written) {
  const absl::string_view name = written.substr(0, written.find('='));
  std::vector<std::string> names;
  for (const FlagSpec& flag : AllFlags(command)) names.push_back(absl::StrCat("--", flag.name));
  return UnknownNameError("flag", name, names);
}

absl::Status CheckOperands(const CommandSpec& command, const std::vector<std::string>& operands) {
  const int count = static_cast<int>(operands.size());
  if (count < command.min_operands) return UsageError(absl::StrCat("needs ", command.operands));
  if (count <= command.max_operands) return absl::OkStatus();
  return UsageError(absl::StrCat("unexpected operand ", operands[command.max_operands]));
}

// The headings of the command's flags, in the order of their first flags.
std::vector<absl::string_view> GroupsOf(const CommandSpec& command) {
  std::vector<absl::string_view> out;
  for (const FlagSpec& flag : AllFlags(command)) {
    if (std::find(out.begin(), out.end(), flag.group) == out.end()) out.push_back(flag.group);
  }
  return out;
}

void AppendFlag(const CommandSpec& command, const FlagSpec& flag, std::string& out) {
  constexpr size_t kHelpColumn = 32;
  std::string line =
      absl::StrCat("  ", flag.letter == '\0' ? "    " : absl::StrCat("-", std::string(1, flag.letter), ", "), "--",
                   flag.name, flag.value.empty() ? "" : " ", flag.value);
  const std::string indent(kHelpColumn, ' ');
  if (line.size() + 2 > kHelpColumn) {  // the text begins on a line of its own
    absl::StrAppend(&out, line, "\n");
    line.clear();
  }
  line.resize(kHelpColumn, ' ');
  const std::vector<std::string> lines = WrapText(FlagHelp(command, flag), kHelpWidth - kHelpColumn);
  for (size_t i = 0; i < lines.size(); ++i) absl::StrAppend(&out, i == 0 ? line : indent, lines[i], "\n");
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

absl::Status BadValueError(absl::string_view flag, absl::string_view value, absl::string_view wanted) {
  return UsageError(absl::StrCat("--", flag, " is ", value.empty() ? "empty" : value, "; it must be ", wanted));
}

absl::Status UnknownNameError(absl::string_view what, absl::string_view written,
                              const std::vector<std::string>& names) {
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string nearest(NearestName(std::string(written), views));
  const std::string question = nearest.empty() ? "" : absl::StrCat(": did you mean ", nearest, "?");
  return UsageError(absl::StrCat("unknown ", what, " ", written, question));
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
  if (!parse(*text, &value)) return BadValueError(flag, *text, wanted);
  return std::optional<T>(std::move(value));
}

absl::StatusOr<std::optional<double>> ParsedArgs::Double(absl::string_view flag) const {
  return Read<double>(flag, "a number", &absl::SimpleAtod);
}

absl::StatusOr<std::optional<int64_t>> ParsedArgs::Int(absl::string_view flag) const {
  return Read<int64_t>(flag, "an integer", &absl::SimpleAtoi<int64_t>);
}

absl::StatusOr<std::vector<int64_t>> ParsedArgs::Ints(absl::string_view flag) const {
  const auto parse = [](absl::string_view text, std::vector<int64_t>* out) {
    const std::vector<absl::string_view> pieces = absl::StrSplit(text, absl::ByAnyChar(",x"));
    return std::all_of(pieces.begin(), pieces.end(),
                       [out](absl::string_view piece) { return absl::SimpleAtoi(piece, &out->emplace_back()); });
  };
  absl::StatusOr<std::optional<std::vector<int64_t>>> values =
      Read<std::vector<int64_t>>(flag, "integers joined by ',' or 'x'", parse);
  if (!values.ok()) return values.status();
  return (*std::move(values)).value_or(std::vector<int64_t>());
}

absl::StatusOr<std::optional<absl::Duration>> ParsedArgs::Duration(absl::string_view flag) const {
  return Read<absl::Duration>(flag, "a duration such as 10s or 500ms, not negative",
                              [](absl::string_view text, absl::Duration* out) {
                                double seconds;
                                const bool plain = absl::SimpleAtod(text, &seconds) && !std::isnan(seconds);
                                if (plain) *out = absl::Seconds(seconds);
                                return (plain || absl::ParseDuration(text, out)) && *out >= absl::ZeroDuration();
                              });
}

absl::StatusOr<ParsedArgs> ParseArgs(const CommandSpec& command, absl::Span<const std::string> arguments) {
  CLI::App app;
  if (absl::Status status = Parse(command, arguments, app); !status.ok()) return status;
  for (const std::string& unknown : app.remaining()) {
    if (unknown != "--") return UnknownFlag(command, unknown);
  }
  ParsedArgs out;
  for (const FlagSpec& flag : AllFlags(command)) {
    const std::vector<std::string>& values = app.get_option_no_throw(absl::StrCat("--", flag.name))->results();
    if (values.empty()) continue;
    const auto is_given = [](const std::string& value) { return value != "true"; };  // CLI11's value for none
    if (flag.value.empty() && std::any_of(values.begin(), values.end(), is_given)) {
      return UsageError(absl::StrCat("--", flag.name, " takes no value"));
    }
    out.flags_.emplace(flag.name, FromParser(values));
  }
  out.operands_ = FromParser(app.get_option_no_throw(kOperands)->results());
  if (out.Has("help")) return out;
  if (absl::Status status = CheckOperands(command, out.operands_); !status.ok()) return status;
  return out;
}

std::vector<FlagSpec> AllFlags(const CommandSpec& command) {
  const bool grouped =
      std::any_of(command.flags.begin(), command.flags.end(), [](const FlagSpec& flag) { return !flag.group.empty(); });
  return Join(command.flags, {{"help", 'h', "", "this text", grouped ? "Other" : ""}});
}

std::string FlagHelp(const CommandSpec& command, const FlagSpec& flag) {
  const auto it = command.defaults.find(flag.name);
  return it == command.defaults.end() ? std::string(flag.help) : absl::StrCat(flag.help, " (default ", it->second, ")");
}

std::string HelpText(absl::string_view program, const CommandSpec& command) {
  std::string out =
      absl::StrCat("Usage: ", program, command.name.empty() ? "" : " ", command.name,
                   command.operands.empty() ? "" : " ", command.operands, " [flags]\n\n", command.summary, "\n");
  if (!command.details.empty()) absl::StrAppend(&out, "\n", ReflowText(command.details, kHelpWidth), "\n");
  for (const absl::string_view group : GroupsOf(command)) {
    absl::StrAppend(&out, "\n", group.empty() ? "Flags" : group, ":\n");
    for (const FlagSpec& flag : AllFlags(command)) {
      if (flag.group == group) AppendFlag(command, flag, out);
    }
  }
  return out;
}

}  // namespace normd::client
