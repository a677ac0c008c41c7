// The flags of normload, read and checked before anything is allocated or connected. Plain values.
#ifndef NORMD_CLIENT_NORMLOAD_OPTIONS_H_
#define NORMD_CLIENT_NORMLOAD_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/args.h"
#include "client/normload/load.h"

namespace normd::client {

struct NormloadOptions {
  LoadOptions load;
  int repeats = 1;
  bool sweep = false;
  std::vector<double> loads;      // of a sweep, in percent of capacity, rising
  absl::Duration max_time;        // of a sweep
  std::optional<int> server_pid;  // absent: found by its socket
  std::string html;               // path of the report, or empty
  std::string command;            // the command line

  int64_t measurements() const;
  // The time of all measurements together, without calls that return late.
  absl::Duration expected_time() const;
  std::string mode() const { return sweep ? "sweep" : load.rate.has_value() ? "open loop" : "closed loop"; }
};

CommandSpec NormloadSpec();

// Sets how many calls the server takes on a connection at a time and, unless they are given, as many connections as put
// all calls in flight into the server.
void SetConnections(int max_streams, LoadOptions& load);

// UsageError, naming flag, value and limit; also for a server on another machine without --allow-remote.
absl::StatusOr<NormloadOptions> MakeOptions(const ParsedArgs& args);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMLOAD_OPTIONS_H_
