// The flags that say how .csv files are written. Pure functions.
#ifndef NORMD_CLIENT_CLI_CSV_FLAGS_H_
#define NORMD_CLIENT_CLI_CSV_FLAGS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/args.h"
#include "client/cli/csv_line.h"

namespace normd::client {

// The flags that say what the first line of a .csv INPUT is, the flags for how every .csv that is read is written, and
// what both say. UsageError if they exclude each other.
std::vector<FlagSpec> HeaderFlags();
std::vector<FlagSpec> SeparatorFlags();
absl::StatusOr<CsvOptions> CsvFlags(const ParsedArgs& args);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_CSV_FLAGS_H_
