// Bounds how often something may happen: a burst, and a rate at which the burst is allowed again.
// In the path: a connection counts with it what costs the server more than its peer. Thread-compatible.
#ifndef NORMD_SERVER_RPC_TRANSPORT_RATE_GUARD_H_
#define NORMD_SERVER_RPC_TRANSPORT_RATE_GUARD_H_

#include <algorithm>

#include "absl/time/time.h"

namespace normd::rpc {

// How many calls a peer may cancel a second, unless --max_cancels_per_second says otherwise: threads that give up at
// once cancel two thousand a second from Python, and a flood forty thousand, at 12 us of CPU each. So this is 6 % of a
// core for each connection.
inline constexpr double kResetsPerSecond = 5000;
// The least burst. Otherwise it is what a second allows.
inline constexpr double kResetBurst = 1000;
// What a call beyond the limit counts as a reset. Clients open up to a hundred calls before they have read the limit;
// after that they know it.
inline constexpr double kWeightOfExcess = 5;

class RateGuard {
 public:
  // Of a peer's resets.
  static RateGuard OfResets(double per_second) { return {std::max(kResetBurst, per_second), per_second}; }

  RateGuard(double burst, double per_second) : burst_(burst), per_second_(per_second), left_(burst) {}

  // Counts `weight`. Returns false when that is too much.
  bool Allow(absl::Time now, double weight = 1) {
    if (last_ != absl::InfinitePast()) left_ += std::max(0.0, absl::ToDoubleSeconds(now - last_)) * per_second_;
    last_ = now;
    left_ = std::min(left_, burst_) - weight;
    return left_ >= 0;
  }

 private:
  const double burst_;
  const double per_second_;
  double left_;
  absl::Time last_ = absl::InfinitePast();
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_RATE_GUARD_H_
