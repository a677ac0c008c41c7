// Command lines: `PROGRAM COMMAND [operands] [flags]`. A command declares its flags once; parsing, --help and the typed
// readers come from that list. Plain values, no globals, so that tests parse without a process.
#ifndef NORMD_CLIENT_CLI_ARGS_H_
#define NORMD_CLIENT_CLI_ARGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace normd::client {

struct FlagSpec {
  absl::string_view name;   // "eps", given as --eps VALUE or --eps=VALUE
  char letter;              // '\0': no short form
  absl::string_view value;  // placeholder in the help; empty: a switch
  absl::string_view help;
};

struct CommandSpec {
  std::string name;      // "layer-norm"
  std::string operands;  // "INPUT", for the usage line
  int min_operands = 0;
  int max_operands = 0;
  std::string summary;  // one line
  std::string details;  // more, for --help
  std::vector<FlagSpec> flags;
};

// A mistake in how the program was called: exit code 2.
absl::Status UsageError(absl::string_view message);
bool IsUsageError(const absl::Status& status);

class ParsedArgs {
 public:
  bool Has(absl::string_view flag) const { return Get(flag).has_value(); }
  // The last value given for `flag`; switches read as "".
  std::optional<std::string> Get(absl::string_view flag) const;
  std::string GetOr(absl::string_view flag, absl::string_view fallback) const;
  std::vector<std::string> GetAll(absl::string_view flag) const;
  const std::vector<std::string>& operands() const { return operands_; }

  // UsageError, naming the flag, where the value is not what is asked for.
  absl::StatusOr<std::optional<double>> Double(absl::string_view flag) const;
  absl::StatusOr<std::optional<int64_t>> Int(absl::string_view flag) const;
  absl::StatusOr<std::vector<int64_t>> Ints(absl::string_view flag, char separator = ',') const;
  absl::StatusOr<std::optional<absl::Duration>> Duration(absl::string_view flag) const;  // "10s", "500ms", "2" seconds

 private:
  friend absl::StatusOr<ParsedArgs> ParseArgs(const CommandSpec&, absl::Span<const std::string>);
  std::vector<std::pair<std::string, std::string>> flags_;
  std::vector<std::string> operands_;
};

// Flags and operands in any order; "--" ends the flags; a value may start with '-'. UsageError for unknown flags,
// missing values, a value given to a switch, and a wrong number of operands (not checked when --help is given).
absl::StatusOr<ParsedArgs> ParseArgs(const CommandSpec& command, absl::Span<const std::string> arguments);

// "Usage: PROGRAM ...", the details and one line a flag.
std::string HelpText(absl::string_view program, const CommandSpec& command);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_ARGS_H_
