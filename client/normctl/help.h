// What --help, completion and man pages say of a command: its flags with headings, values and defaults, without those
// that can never apply. In the path: between the list of commands and everything that shows it. Pure functions.
#ifndef NORMD_CLIENT_NORMCTL_HELP_H_
#define NORMD_CLIENT_NORMCTL_HELP_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cli/args.h"

namespace normd::client {

// The method that a command is about: layer_norm of "layer-norm", and of "moments METHOD INPUT" the first of `words`
// that names one. Empty if there is none.
std::string MethodOfCommand(const CommandSpec& command, absl::Span<const std::string> words);

// The command as it is shown. `method` is a NormSpec field, or empty where it is not known.
CommandSpec ShownCommand(CommandSpec command, absl::string_view method);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_HELP_H_
