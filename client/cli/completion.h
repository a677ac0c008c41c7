// Completion scripts for shells, made from the list of commands and flags: commands, flags, the values of flags that
// have only so many, files, methods. The scripts hold the list; completing runs no program. Pure function.
#ifndef NORMD_CLIENT_CLI_COMPLETION_H_
#define NORMD_CLIENT_CLI_COMPLETION_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cli/args.h"

namespace normd::client {

// The script of `shell`: bash, zsh or fish. `commands` holds the program itself, whose name is empty, groups
// ("session") and commands ("session get"). UsageError for other shells.
absl::StatusOr<std::string> CompletionScript(absl::string_view shell, absl::string_view program,
                                             absl::Span<const CommandSpec> commands);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_COMPLETION_H_
