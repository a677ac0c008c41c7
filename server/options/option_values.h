// The value of one option in a Config: read from text, written as text, compared and copied. The type of the member
// that the Option points to says how. In the path: ParseConfig reads with it; a reload and --check_config write.
// Threads: pure functions.
#ifndef NORMD_SERVER_OPTIONS_OPTION_VALUES_H_
#define NORMD_SERVER_OPTIONS_OPTION_VALUES_H_

#include <string>

#include "absl/status/status.h"
#include "server/options/config.h"
#include "server/options/option_list.h"

namespace normd {

// Parses `text` into the option's member of `config`; a list grows. Returns INVALID_ARGUMENT about "--name" if `text`
// is not of the option's type or not within its limits.
absl::Status SetOption(const Option& option, const std::string& text, Config& config);

// The value as people write it: "64MiB", "30s", "a,b". A URL that may hold a password is cut to its scheme.
std::string ValueText(const Option& option, const Config& config);

bool SameValue(const Option& option, const Config& a, const Config& b);
void CopyValue(const Option& option, const Config& from, Config& to);

}  // namespace normd

#endif  // NORMD_SERVER_OPTIONS_OPTION_VALUES_H_
