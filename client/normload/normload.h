// normload as a function: flags in, a report out. main.cc and tests call it.
// In the path: options.h reads the flags, load.h measures, sweep.h measures many times, report.h prints.
#ifndef NORMD_CLIENT_NORMLOAD_NORMLOAD_H_
#define NORMD_CLIENT_NORMLOAD_NORMLOAD_H_

#include <string>

#include "absl/types/span.h"
#include "client/cli/program.h"

namespace normd::client {

// Returns the process's exit code: 1 where a call failed, too. In a sweep the server may reject calls: that is what
// loads above capacity are for.
int RunNormload(absl::Span<const std::string> arguments, const Terminal& terminal);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMLOAD_NORMLOAD_H_
