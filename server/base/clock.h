// The clock as an interface, so that ttl, time stamps and measurements can be tested with a fake clock.
// Threads: Now is safe from any thread.
#ifndef NORMD_SERVER_BASE_CLOCK_H_
#define NORMD_SERVER_BASE_CLOCK_H_

#include "absl/time/time.h"

namespace normd {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() = 0;
};

// The time of day, which may jump.
class SystemClock : public Clock {
 public:
  absl::Time Now() override;
};

// The time of SteadyNow (steady_time.h), for durations and deadlines.
class SteadyClock : public Clock {
 public:
  absl::Time Now() override;
};

}  // namespace normd

#endif  // NORMD_SERVER_BASE_CLOCK_H_
