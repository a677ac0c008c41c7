// Names the kind of a file that normctl does not read, by its first bytes, so that an error can say what was given.
// Pure functions.
#ifndef NORMD_CLIENT_CLI_OTHER_FILE_H_
#define NORMD_CLIENT_CLI_OTHER_FILE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace normd::client {

// "is a checkpoint of PyTorch (torch.save)": what `file` is, if it is a known kind other than .npy, text, and
// records of normd. Zip archives are told apart by the names of their members.
std::optional<std::string> OtherFileKind(absl::string_view file);

// INVALID_ARGUMENT, with a word for what it is, unless `file` is text in ASCII or UTF-8.
absl::Status CheckText(absl::string_view file);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_OTHER_FILE_H_
