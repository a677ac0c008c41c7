// What users wrote for the options of `normd`, still as text: on the command line and in the environment.
// In the path: ParseConfig merges the sources and reads the texts. Pure functions; nothing outside is touched.
#ifndef NORMD_SERVER_OPTION_SOURCES_H_
#define NORMD_SERVER_OPTION_SOURCES_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace normd {

// The texts that one source gives for each option, in their order. The keys are the names in AllOptions().
using OptionTexts = std::map<std::string_view, std::vector<std::string>>;

// Arguments without the program's name: --name=value, --name value, --flag, --noflag; --data-dir is --data_dir and -h
// is
// --help. INVALID_ARGUMENT names an argument that is no option (with the option that was probably meant) or an option
// that lacks its value.
absl::StatusOr<OptionTexts> ReadCommandLine(absl::Span<const std::string> args);

// The variables that EnvironmentName() names. Options that are commands, like --help, are not read from the
// environment, where NORMD_VERSION may mean anything.
OptionTexts ReadEnvironment(const std::map<std::string, std::string>& env);

}  // namespace normd

#endif  // NORMD_SERVER_OPTION_SOURCES_H_
