// Stats of the threads of a transport's queues, for metrics.
// In the path: beside it; the dispatcher fills them. Plain values.
#ifndef NORMD_SERVER_RPC_TRANSPORT_QUEUE_STATS_H_
#define NORMD_SERVER_RPC_TRANSPORT_QUEUE_STATS_H_

#include <cstdint>

#include "absl/time/time.h"

namespace normd {

struct QueueStats {
  absl::Duration longest_callback;  // a callback blocks everything else of its queue while it runs
  int64_t slow_callbacks = 0;       // callbacks of 5 ms or more since the start
  int64_t queues = 0;               // each with a thread
  absl::Duration busy;              // time in callbacks since the start, of all queues
  int64_t calls = 0;                // calls that have arrived and are not over
};

}  // namespace normd

#endif  // NORMD_SERVER_RPC_TRANSPORT_QUEUE_STATS_H_
