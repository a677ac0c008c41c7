#include "server/base/clock.h"

#include "absl/time/clock.h"

namespace normd {

absl::Time SystemClock::Now() { return absl::Now(); }

}  // namespace normd
