// Reads the tokens file and the policy file, and makes the errors about them, which name option, file and line.
// In the path: beside it, at the start and at each reload. Safe from any thread.
#ifndef NORMD_SERVER_SECURITY_SOURCE_FILE_H_
#define NORMD_SERVER_SECURITY_SOURCE_FILE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace normd {

// A file that an option names.
struct SourceFile {
  std::string option;   // "--policy_file"
  std::string path;     // empty: there is none
  bool secret = false;  // true: refused if users outside its owner and group could read it
};

// INVALID_ARGUMENT, reason BAD_FILE: "--policy_file /etc/normd/policy.toml, line 12: <what>". Line 0 stands for the
// whole file.
absl::Status BadFileError(const SourceFile& file, int line, std::string_view what);

// The contents of `file`. BAD_FILE if the file cannot be read, is no regular file, has over 4 MiB, can be changed by
// users outside its owner and group, or is secret and open to more users than it may be. `*state` becomes the state
// that the file was in before it was read (FileState), or stays as it is if there is none.
absl::StatusOr<std::string> ReadSourceFile(const SourceFile& file, std::string* state = nullptr);

// UNAVAILABLE, reason FILE_CHANGING: each look at the file at `path`, which `option` names, has found another content
// than the one before.
absl::Status FileChangingError(std::string_view option, const std::string& path);

}  // namespace normd

#endif  // NORMD_SERVER_SECURITY_SOURCE_FILE_H_
