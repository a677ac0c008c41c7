// Bounds how often something may happen: a burst, and a rate at which the burst is allowed again.
// In the path: a connection counts with it the events that cost the server more than its peer. Thread-compatible.
#ifndef NORMD_SERVER_NET_RATE_GUARD_H_
#define NORMD_SERVER_NET_RATE_GUARD_H_

#include <algorithm>

#include "absl/time/time.h"

namespace normd::net {

class RateGuard {
 public:
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

}  // namespace normd::net

#endif  // NORMD_SERVER_NET_RATE_GUARD_H_
