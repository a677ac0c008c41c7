// normload as a function: flags in, a report out. main.cc and tests call it.
#ifndef NORMD_CLIENT_NORMLOAD_NORMLOAD_H_
#define NORMD_CLIENT_NORMLOAD_NORMLOAD_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cli/args.h"
#include "client/cli/program.h"
#include "client/normload/load.h"

namespace normd::client {

CommandSpec NormloadSpec();

// Checks the flags and makes the request, its values drawn from a fixed seed. UsageError for a server that is not on
// this machine, unless --allow-remote is given.
absl::StatusOr<LoadOptions> MakeLoadOptions(const ParsedArgs& args);

// Returns the process's exit code: 1 where a call failed, too.
int RunNormload(absl::Span<const std::string> arguments, const Terminal& terminal);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMLOAD_NORMLOAD_H_
