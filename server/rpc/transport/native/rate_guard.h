// Bounds how often something may happen: a burst, and a rate at which the burst is allowed again.
// In the path: a connection counts frames with it that cost the server more than their sender. Thread-compatible.
#ifndef NORMD_SERVER_RPC_TRANSPORT_NATIVE_RATE_GUARD_H_
#define NORMD_SERVER_RPC_TRANSPORT_NATIVE_RATE_GUARD_H_

#include <algorithm>

#include "absl/time/time.h"

namespace normd::rpc::native {

class RateGuard {
 public:
  RateGuard(double burst, double per_second) : burst_(burst), per_second_(per_second), left_(burst) {}

  // Counts one. Returns false when that is one too many.
  bool Allow(absl::Time now) {
    if (last_ != absl::InfinitePast()) left_ += std::max(0.0, absl::ToDoubleSeconds(now - last_)) * per_second_;
    last_ = now;
    left_ = std::min(left_, burst_) - 1;
    return left_ >= 0;
  }

 private:
  const double burst_;
  const double per_second_;
  double left_;
  absl::Time last_ = absl::InfinitePast();
};

}  // namespace normd::rpc::native

#endif  // NORMD_SERVER_RPC_TRANSPORT_NATIVE_RATE_GUARD_H_
