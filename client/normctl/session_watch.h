// normctl session watch: a session's running statistics as they move, one line for each version that is seen.
// In the path: between GetSession and the terminal. The loop is given how to ask and how to wait, so that tests run it
// without a server and without time.
// Threads: runs on the caller's, until the end that its options name.
#ifndef NORMD_CLIENT_NORMCTL_SESSION_WATCH_H_
#define NORMD_CLIENT_NORMCTL_SESSION_WATCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/program.h"
#include "normd/v1/sessions.pb.h"

namespace normd::client {

// One vector of the state: its mean over the channels, and how far it moved since the version before.
struct WatchedStatistic {
  std::vector<double> values;
  double mean = 0;
  double largest_change = 0;  // 0 where there is nothing to compare with
};

// max |now - before|; with `relative` of |now - before| / |before|, where 0 / 0 is 0. NaN where any term is NaN.
// REQUIRES: equal lengths.
double LargestChange(const std::vector<double>& before, const std::vector<double>& now, bool relative);

// "▁▃█": a character a value, from the smallest to the largest that is finite; ' ' for the others.
std::string Sparkline(const std::vector<double>& values);

struct WatchOptions {
  std::string name;  // "sessions/bn"
  absl::Duration interval;
  int64_t count = 0;  // lines; 0: until an error
  bool json = false;  // an object a line
};

// Asks with `get` for the FULL view and waits with `sleep` between. Ends after `count` lines, when the output is gone,
// and with the error of `get`: NOT_FOUND once the session is deleted. A session that was deleted and created again goes
// on under its new uid, said on the line before (JSON: "recreated").
absl::Status WatchSession(const WatchOptions& options, absl::FunctionRef<absl::StatusOr<v1::Session>()> get,
                          absl::FunctionRef<void(absl::Duration)> sleep, const Terminal& terminal);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_SESSION_WATCH_H_
