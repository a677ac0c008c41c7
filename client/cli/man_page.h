// Man pages made from the list of commands. Pure functions.
#ifndef NORMD_CLIENT_CLI_MAN_PAGE_H_
#define NORMD_CLIENT_CLI_MAN_PAGE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cli/args.h"

namespace normd::client {

// "normctl-session-create" for "session create".
std::string ManPageName(absl::string_view program, const CommandSpec& command);

// The page of `command`, one of `commands`, in roff with the macros of man(7). The command without a name is the
// program itself, whose page lists all others.
std::string ManPage(absl::string_view program, absl::Span<const CommandSpec> commands, const CommandSpec& command);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_MAN_PAGE_H_
