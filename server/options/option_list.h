// The one list of `normd`'s options: their names, defaults, limits and help texts. Config is filled from this list.
// In the path: option_sources.cc looks up names, and config.cc reads values. Constant data.
#ifndef NORMD_SERVER_OPTIONS_OPTION_LIST_H_
#define NORMD_SERVER_OPTIONS_OPTION_LIST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/options/config.h"

namespace normd {

// One option. The type of the member that `field` points to says how the option's value is parsed; int64 options with
// `bytes` take the units KiB, MiB and GiB.
struct Option {
  std::string_view name;
  std::variant<bool Config::*, int64_t Config::*, double Config::*, absl::Duration Config::*, std::string Config::*,
               std::vector<std::string> Config::*>
      field;
  std::string_view default_value;
  std::string_view help;
  int64_t min = 0, max = 0;       // int64 and double options; durations, in seconds
  bool bytes = false;             // int64 options
  std::string_view choices = {};  // string options: "a|b|c"
  bool is_command = false;        // makes normd do something other than serve; taken from the command line alone
  bool is_reloadable = false;     // SIGHUP can change the value while normd serves
  bool has_secret = false;        // the value may hold a password, so it is not printed
};

// The option whose value is the name of a file with options.
inline constexpr std::string_view kConfigFileOption = "config";

// All options. In values, {runtime} is $XDG_RUNTIME_DIR, or else /tmp/normd-<uid>, which is made with mode 0700; the
// help of --data_dir explains {state}.
absl::Span<const Option> AllOptions();

// The option called `name`; null: there is none.
const Option* FindOption(std::string_view name);
// The option's limit in words: "1KiB to 64TiB", "auto, on or off". Empty where any text is taken.
std::string LimitText(const Option& option);
// The number with the largest unit that fits it: "64MiB".
std::string BytesText(int64_t bytes);

// The option that `name` probably means: the option of that name, else the one with the nearest name. Empty when no
// option's name is near.
std::string_view NearestOption(std::string_view name);
// The environment variable of the option called `name`: NORMD_MAX_SESSIONS for max_sessions.
std::string EnvironmentName(std::string_view name);

}  // namespace normd

#endif  // NORMD_SERVER_OPTIONS_OPTION_LIST_H_
