// The one list of `normd`'s options: their names, defaults, limits and help texts. Config is filled from this list.
// In the path: option_sources.cc looks up names, and config.cc reads values. Constant data.
#ifndef NORMD_SERVER_OPTION_LIST_H_
#define NORMD_SERVER_OPTION_LIST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/config.h"

namespace normd {

inline constexpr int64_t kMiB = int64_t{1} << 20;
inline constexpr int64_t kGiB = int64_t{1} << 30;

// One option. The type of the member that `field` points to says how the option's value is parsed; int64 options with
// `bytes` take the units KiB, MiB and GiB.
struct Option {
  std::string_view name;
  std::variant<bool Config::*, int64_t Config::*, absl::Duration Config::*, std::string Config::*,
               std::vector<std::string> Config::*>
      field;
  std::string_view default_value;
  std::string_view help;
  int64_t min = 0, max = 0;       // int64 options; durations, in seconds
  bool bytes = false;             // int64 options
  std::string_view choices = {};  // string options: "a|b|c"
  bool is_command = false;        // makes normd do something other than serve; not read from the environment
};

// All options. In values, {runtime} is $XDG_RUNTIME_DIR, or else /tmp/normd-<uid>, which is made with mode 0700; the
// help of --data_dir explains {state}.
absl::Span<const Option> AllOptions();

// The option that `name` probably means: the option of that name, else the one with the nearest name. Empty when no
// option's name is near.
std::string_view NearestOption(std::string_view name);
// The environment variable of the option called `name`: NORMD_MAX_SESSIONS for max_sessions.
std::string EnvironmentName(std::string_view name);

}  // namespace normd

#endif  // NORMD_SERVER_OPTION_LIST_H_
