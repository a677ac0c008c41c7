// What the completion queues' threads were busy with, for metrics. Plain values.
#ifndef NORMD_SERVER_RPC_TRANSPORT_QUEUE_STATS_H_
#define NORMD_SERVER_RPC_TRANSPORT_QUEUE_STATS_H_

#include <cstdint>

#include "absl/time/time.h"

namespace normd {

struct QueueStats {
  absl::Duration longest_callback;  // while it ran, nothing else of its queue moved
  int64_t slow_callbacks = 0;       // of over 5 ms, since the start
};

}  // namespace normd

#endif  // NORMD_SERVER_RPC_TRANSPORT_QUEUE_STATS_H_
