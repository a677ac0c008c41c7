// The steady clock as an absl::Time, so that the usual arithmetic works on it. The clock never jumps, and its epoch has
// no meaning. In the path: wherever an interval is measured. Safe from any thread.
#ifndef NORMD_SERVER_BASE_STEADY_TIME_H_
#define NORMD_SERVER_BASE_STEADY_TIME_H_

#include <chrono>

#include "absl/time/time.h"

namespace normd {

inline absl::Time SteadyNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace normd

#endif  // NORMD_SERVER_BASE_STEADY_TIME_H_
