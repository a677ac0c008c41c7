// The one list of `normd`'s options: names, defaults, limits and what --help says. Config is filled from it.
// In the path: option_sources.cc looks names up, config.cc reads values. Constant data.
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

// One option. Which member `field` holds says how its value is read; int64 options with `bytes` take KiB, MiB, GiB.
struct Option {
  std::string_view name;
  std::variant<bool Config::*, int64_t Config::*, absl::Duration Config::*, std::string Config::*,
               std::vector<std::string> Config::*>
      field;
  std::string_view default_value;
  std::string_view help;
  int64_t min = 0, max = 0;       // int64; durations, in seconds
  bool bytes = false;             // int64
  std::string_view choices = {};  // strings: "a|b|c"
  bool is_command = false;        // does something else than serve; not taken from the environment
};

// {runtime} is $XDG_RUNTIME_DIR, or /tmp/normd-<uid>, made with mode 0700; {state} as the option's help says.
absl::Span<const Option> AllOptions();

// The option that `name` probably means: the one called so, or else the nearest. Empty: none is near.
std::string_view NearestOption(std::string_view name);
// The environment variable of the option called `name`: NORMD_MAX_SESSIONS for max_sessions.
std::string EnvironmentName(std::string_view name);

}  // namespace normd

#endif  // NORMD_SERVER_OPTION_LIST_H_
