#include "server/base/clock.h"

#include "absl/time/clock.h"
#include "server/base/steady_time.h"

namespace normd {

absl::Time SystemClock::Now() { return absl::Now(); }

absl::Time SteadyClock::Now() { return SteadyNow(); }

}  // namespace normd
