// Reads the values of `normd`'s options, still as text, from the command line and from the environment.
// In the path: ParseConfig merges the two sources and parses the texts.
// Threads: pure functions.
#ifndef NORMD_SERVER_OPTIONS_OPTION_SOURCES_H_
#define NORMD_SERVER_OPTIONS_OPTION_SOURCES_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace normd {

// The texts that one source gives for each option, in the order given. The keys are the names in AllOptions().
using OptionTexts = std::map<std::string_view, std::vector<std::string>>;

// Reads arguments (without the program's name) of the forms --name=value, --name value, --flag and --noflag; --data-dir
// means --data_dir, and -h means --help. Returns INVALID_ARGUMENT for an argument that is no option, naming the option
// that was probably meant, and for an option without its value.
absl::StatusOr<OptionTexts> ReadCommandLine(absl::Span<const std::string> args);

// Reads the variables that EnvironmentName() names. Options that are commands, like --help, are not read from the
// environment, where NORMD_VERSION may mean anything.
OptionTexts ReadEnvironment(const std::map<std::string, std::string>& env);

}  // namespace normd

#endif  // NORMD_SERVER_OPTIONS_OPTION_SOURCES_H_
