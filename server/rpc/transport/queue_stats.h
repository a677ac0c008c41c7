// Stats of a transport's queues, for metrics: of their threads, and of the calls that the transport keeps to itself.
// In the path: beside it; the dispatcher fills them. Plain values.
#ifndef NORMD_SERVER_RPC_TRANSPORT_QUEUE_STATS_H_
#define NORMD_SERVER_RPC_TRANSPORT_QUEUE_STATS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/time/time.h"

namespace normd {

// Why the transport itself refuses a call at its headers. The dispatcher, and with it every other metric, hears only of
// calls that were not refused in this way.
enum class TransportRefusal : uint8_t {
  kNotGrpc,     // no POST, or another content type than gRPC's
  kTooLarge,    // the header fields are over the limit
  kMalformed,   // a timeout or a binary value that cannot be decoded
  kCompressed,  // the messages are to be compressed
};
inline constexpr size_t kTransportRefusals = 4;

inline constexpr std::array<std::string_view, kTransportRefusals> kTransportRefusalNames = {"not_grpc", "too_large",
                                                                                            "malformed", "compressed"};

struct QueueStats {
  absl::Duration longest_callback;                    // a callback blocks everything else of its queue while it runs
  int64_t slow_callbacks = 0;                         // callbacks of 5 ms or more since the start
  int64_t queues = 0;                                 // each with a thread
  absl::Duration busy;                                // time in callbacks since the start, of all queues
  int64_t calls = 0;                                  // calls that have arrived and are not over
  std::array<int64_t, kTransportRefusals> refused{};  // calls since the start, by TransportRefusal
};

}  // namespace normd

#endif  // NORMD_SERVER_RPC_TRANSPORT_QUEUE_STATS_H_
