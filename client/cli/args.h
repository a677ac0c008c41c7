// Command lines: `PROGRAM [flags] COMMAND [operands] [flags]`. A command declares its flags once, as data; parsing (by
// CLI11, which args.cc alone includes), --help and the typed readers come from that list. Plain values without globals,
// so that tests parse without a process.
#ifndef NORMD_CLIENT_CLI_ARGS_H_
#define NORMD_CLIENT_CLI_ARGS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace normd::client {

struct FlagSpec {
  // "eps", given as --eps VALUE or --eps=VALUE.
  absl::string_view name;
  char letter;              // the short form; '\0': none
  absl::string_view value;  // the placeholder in the help; empty: the flag is a switch and takes no value
  absl::string_view help;
  absl::string_view group = "";    // the heading of the flag in the help; flags without one come first
  absl::string_view choices = "";  // the values, joined by '|', if there are only these
};

struct CommandSpec {
  std::string name;      // "layer-norm"
  std::string operands;  // "INPUT", for the usage line
  int min_operands = 0;
  int max_operands = 0;
  std::string summary;          // one line
  std::string details;          // more text, for --help: paragraphs; lines that start with two blanks stay as they are
  std::vector<FlagSpec> flags;  // all flags but --help, which every command has
  // If true, everything after the first operand is an operand, even if it looks like a flag.
  bool flags_first = false;
  // The values that flags have where they are not given, by name, if the help of the flag does not say it.
  std::map<std::string, std::string, std::less<>> defaults;
};

// Concatenates: {"a", "b"} and {"c"} give {"a", "b", "c"}.
std::vector<FlagSpec> Join(std::vector<FlagSpec> a, const std::vector<FlagSpec>& b);

// An error for a program that was called wrongly: exit code 2.
absl::Status UsageError(absl::string_view message);
// UsageError "--eps is small; it must be a number": the value of `flag` is not what is `wanted`.
absl::Status BadValueError(absl::string_view flag, absl::string_view value, absl::string_view wanted);
// UsageError "unknown command heath: did you mean health?", or without the question where none of `names` is near.
absl::Status UnknownNameError(absl::string_view what, absl::string_view written, const std::vector<std::string>& names);
bool IsUsageError(const absl::Status& status);

class ParsedArgs {
 public:
  bool Has(absl::string_view flag) const { return flags_.contains(flag); }
  // The last value given for `flag`.
  std::optional<std::string> Get(absl::string_view flag) const;
  std::string GetOr(absl::string_view flag, absl::string_view fallback) const;
  std::vector<std::string> GetAll(absl::string_view flag) const;
  const std::vector<std::string>& operands() const { return operands_; }

  // The value of `flag`, parsed. UsageError, naming the flag, if the value has another form.
  absl::StatusOr<std::optional<double>> Double(absl::string_view flag) const;
  absl::StatusOr<std::optional<int64_t>> Int(absl::string_view flag) const;
  // Integers joined by ',' or, as shapes are written, by 'x': "4,8" and "4x8".
  absl::StatusOr<std::vector<int64_t>> Ints(absl::string_view flag) const;
  absl::StatusOr<std::optional<absl::Duration>> Duration(absl::string_view flag) const;  // "10s", "500ms", "2" seconds

 private:
  friend absl::StatusOr<ParsedArgs> ParseArgs(const CommandSpec&, absl::Span<const std::string>);
  // The value of `flag`, read by `parse`. If `parse` refuses, UsageError says what is `wanted`.
  template <typename T, typename Parse>
  absl::StatusOr<std::optional<T>> Read(absl::string_view flag, absl::string_view wanted, Parse parse) const;

  std::map<std::string, std::vector<std::string>, std::less<>> flags_;  // only the flags that were given
  std::vector<std::string> operands_;
};

// Takes flags and operands in any order, --eps-mode or --eps_mode, and -o FILE or -oFILE. "--" ends the flags, and a
// value may start with '-'. UsageError for unknown flags, missing values, a value given to a switch, and a wrong number
// of operands (not checked if --help is given).
absl::StatusOr<ParsedArgs> ParseArgs(const CommandSpec& command, absl::Span<const std::string> arguments);

// The flags of the command with --help. What --help and everything made from it list.
std::vector<FlagSpec> AllFlags(const CommandSpec& command);
// The flag's help with its default: "0 means none (default 1e-5)".
std::string FlagHelp(const CommandSpec& command, const FlagSpec& flag);

// "Usage: PROGRAM ...", the details, and the flags by group, in lines of at most 80 characters.
std::string HelpText(absl::string_view program, const CommandSpec& command);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_ARGS_H_
