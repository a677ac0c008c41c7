// The commands `completion` and `man` of a program, made from its list of commands and flags.
#ifndef NORMD_CLIENT_CLI_SHELL_COMMANDS_H_
#define NORMD_CLIENT_CLI_SHELL_COMMANDS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cli/args.h"
#include "client/cli/program.h"

namespace normd::client {

CommandSpec CompletionSpec();  // "completion SHELL"
CommandSpec ManSpec();         // "man [COMMAND...]"

// Print what the arguments ask for. `commands` as for CompletionText and ManPage.
absl::Status RunCompletion(absl::string_view program, const ParsedArgs& args, const Terminal& terminal);
absl::Status RunMan(absl::string_view program, absl::Span<const CommandSpec> commands, const ParsedArgs& args,
                    const Terminal& terminal);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_SHELL_COMMANDS_H_
