#include "server/wiring/idle_trimmer.h"

#include <algorithm>
#include <utility>

namespace normd {

IdleTrimmer::IdleTrimmer(TrimmerHooks hooks)
    : hooks_(std::move(hooks)), moved_bytes_(hooks_.moved_bytes()), floor_bytes_(hooks_.unused_bytes()) {}

void IdleTrimmer::Look() {
  const int64_t moved_bytes = hooks_.moved_bytes();
  const bool quiet = moved_bytes - moved_bytes_ < kQuietBytes && hooks_.in_flight_bytes() < kQuietBytes;
  moved_bytes_ = moved_bytes;
  quiet_looks_ = quiet ? quiet_looks_ + 1 : 0;
  if (quiet_looks_ < kQuietLooks) return;
  quiet_looks_ = 0;
  const int64_t unused_bytes = hooks_.unused_bytes();
  floor_bytes_ = std::min(floor_bytes_, unused_bytes);
  if (unused_bytes - floor_bytes_ < kLeastGrowthBytes) return;
  hooks_.trim();
  floor_bytes_ = hooks_.unused_bytes();
}

PeriodicTrimmer::PeriodicTrimmer(TrimmerHooks hooks, absl::Duration interval)
    : trimmer_(std::move(hooks)), thread_(interval, [this] { trimmer_.Look(); }) {}

}  // namespace normd
