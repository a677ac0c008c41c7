// How many things wait at a stage, and how long the oldest of them has waited, for metrics.
// In the path: beside it; each stage that makes requests wait fills one. Plain values.
#ifndef NORMD_SERVER_BASE_WAIT_STATS_H_
#define NORMD_SERVER_BASE_WAIT_STATS_H_

#include <cstdint>

#include "absl/time/time.h"

namespace normd {

struct WaitStats {
  int64_t waiting = 0;
  absl::Duration oldest;  // 0 if nothing waits
};

}  // namespace normd

#endif  // NORMD_SERVER_BASE_WAIT_STATS_H_
