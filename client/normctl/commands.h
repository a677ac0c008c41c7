// The commands of normctl: one list, from which dispatch and help are made. A command is a function from its arguments
// and a terminal to a status, so that tests call it without a process.
#ifndef NORMD_CLIENT_NORMCTL_COMMANDS_H_
#define NORMD_CLIENT_NORMCTL_COMMANDS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/cli/args.h"
#include "client/cli/program.h"

namespace normd::client {

struct Command {
  CommandSpec spec;
  absl::Status (*run)(const CommandSpec& spec, const ParsedArgs& args, const Terminal& terminal);
};

// The parts of the list; each source file has one.
std::vector<Command> NormalizeCommands();  // one for each method, and "normalize" for sessions
std::vector<Command> SessionCommands();    // "session create", ...
std::vector<Command> SessionCommitCommands();
std::vector<Command> SessionTransferCommands();  // "session export", "session import"
std::vector<Command> SessionWatchCommands();
std::vector<Command> DescribeCommands();  // methods, describe, health
std::vector<Command> MomentsCommands();
std::vector<Command> DemoCommands();
std::vector<Command> VerifyCommands();
std::vector<Command> StatsFitCommands();
std::vector<Command> StatsCommands();  // "stats show", "stats watch", "stats diff"
std::vector<Command> StatsExportCommands();

// The whole list. All commands but completion and man have the server's flags. The last three are groups: "session",
// "stats", and "" for normctl itself.
std::vector<Command> AllCommands();

// The list as --help, completion and man pages show it (client/normctl/help.h).
std::vector<CommandSpec> ShownCommands();

// Runs normctl: finds the command, parses its arguments, runs it and reports. Returns the process's exit code.
int RunNormctl(absl::Span<const std::string> arguments, const Terminal& terminal);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_COMMANDS_H_
