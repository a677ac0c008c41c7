// Reads the file of --config: TOML whose keys are the names of options.
// In the path: ParseConfig reads the file below the command line and the environment, at the start and at each SIGHUP.
// Threads: pure functions, but for reading the file.
#ifndef NORMD_SERVER_OPTIONS_CONFIG_FILE_H_
#define NORMD_SERVER_OPTIONS_CONFIG_FILE_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace normd {

// One option of the file, as text that SetOption accepts: the value, or the items of a list.
struct FileOption {
  std::vector<std::string> texts;
  int line = 0;
};
// By the names in AllOptions().
using FileOptions = std::map<std::string_view, FileOption>;

// Reads the regular file `path`, of at most 1 MiB. Returns INVALID_ARGUMENT about --config if the file cannot be read,
// and the errors of ParseConfigFile.
absl::StatusOr<FileOptions> ReadConfigFile(const std::string& path);

// What the file `path` holds and the state that it is in (FileState in regular_file.h), or why it cannot be read: a
// text that differs after each change of the file.
std::string ConfigFileKey(const std::string& path);

// Parses `text`, the contents of the file `path`. Returns INVALID_ARGUMENT, naming path and line, if the text is not
// TOML, for the first key that is not an option of files (with the option that was probably meant), and for a value of
// the wrong type. Limits are not checked here. No error shows a string of the file.
absl::StatusOr<FileOptions> ParseConfigFile(std::string_view text, const std::string& path);

// How errors name an option of the file: "/etc/normd.toml:3: queues".
std::string FileOptionName(std::string_view path, int line, std::string_view name);

}  // namespace normd

#endif  // NORMD_SERVER_OPTIONS_CONFIG_FILE_H_
