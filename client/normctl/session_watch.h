// normctl session watch: shows a session's running statistics as they move, one line for each version that is seen.
// In the path: between GetSession and the terminal. The caller passes the functions that ask and wait, so that tests
// run the loop without a server and without time.
// Threads: runs on the caller's thread, until the end that its options name.
#ifndef NORMD_CLIENT_NORMCTL_SESSION_WATCH_H_
#define NORMD_CLIENT_NORMCTL_SESSION_WATCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/error_text.h"
#include "client/cli/program.h"
#include "normd/v1/sessions.pb.h"

namespace normd::client {

// One vector of the state: its mean over the channels, and the distance that it moved since the previous version.
struct WatchedStatistic {
  std::vector<double> values;
  double mean = 0;
  double largest_change = 0;  // 0 if there is nothing to compare with
};

// max |now - before|; with `relative`, max |now - before| / |before|, where 0 / 0 is 0. NaN if any term is NaN.
// REQUIRES: equal lengths.
double LargestChange(const std::vector<double>& before, const std::vector<double>& now, bool relative);

// "▁▃█": one character for each value, scaled from the smallest to the largest finite value; ' ' for values that are
// not finite.
std::string Sparkline(const std::vector<double>& values);

struct WatchOptions {
  std::string name;  // "sessions/bn"
  absl::Duration interval;
  int64_t count = 0;    // lines to print; 0: until an error
  bool json = false;    // one JSON object for each line
  ErrorContext errors;  // for the sentence of a JSON error
};

// Asks with `get` for the FULL view and waits with `sleep` in between. Ends after `count` lines, when the output is
// closed, and with the error of `get` (NOT_FOUND once the session is deleted). If the session is deleted and created
// again, watching goes on under the new uid, and the line before says so (JSON: "recreated").
absl::Status WatchSession(const WatchOptions& options, absl::FunctionRef<absl::StatusOr<v1::Session>()> get,
                          absl::FunctionRef<void(absl::Duration)> sleep, const Terminal& terminal);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_SESSION_WATCH_H_
