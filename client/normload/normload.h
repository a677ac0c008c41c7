// normload as a function from flags to a report; main.cc and tests call it.
// In the path: options.h reads the flags, load.h measures, sweep.h measures many times, report.h prints.
#ifndef NORMD_CLIENT_NORMLOAD_NORMLOAD_H_
#define NORMD_CLIENT_NORMLOAD_NORMLOAD_H_

#include <string>

#include "absl/types/span.h"
#include "client/cli/program.h"

namespace normd::client {

// Returns the process's exit code, which is also 1 if a call failed, and 130 or 143 after SIGINT or SIGTERM, which end
// the measurement and leave the report of what it has. In a sweep, the server may reject calls: loads above capacity
// are meant to make it do so.
int RunNormload(absl::Span<const std::string> arguments, const Terminal& terminal);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMLOAD_NORMLOAD_H_
