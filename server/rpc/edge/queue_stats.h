// Stats of a transport's queues, for metrics: of their threads, and of the calls that the transport keeps to itself.
// In the path: beside it; the dispatcher fills them. Plain values.
#ifndef NORMD_SERVER_RPC_EDGE_QUEUE_STATS_H_
#define NORMD_SERVER_RPC_EDGE_QUEUE_STATS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/time/time.h"
#include "server/net/loop_load.h"

namespace normd {

// Why the transport itself refuses a call at its headers. The dispatcher, and with it every other metric, sees only
// calls that were not refused in this way.
enum class TransportRefusal : uint8_t {
  kNotGrpc,     // no POST, or another content type than gRPC's
  kTooLarge,    // the header fields are over the limit
  kMalformed,   // a timeout or a binary value that cannot be decoded
  kCompressed,  // the messages are to be compressed
  kHttp,        // a header field or a frame that breaks HTTP/2's rules
};
inline constexpr size_t kTransportRefusals = 5;

inline constexpr std::array<std::string_view, kTransportRefusals> kTransportRefusalNames = {
    "not_grpc", "too_large", "malformed", "compressed", "http"};

// How the server's RST_STREAM frames are counted: by HTTP/2's error codes (RFC 9113, 7), in their order; the last name
// is that of any other code.
inline constexpr std::array<std::string_view, 15> kStreamResetNames = {"no_error",
                                                                       "protocol_error",
                                                                       "internal_error",
                                                                       "flow_control_error",
                                                                       "settings_timeout",
                                                                       "stream_closed",
                                                                       "frame_size",
                                                                       "refused_stream",
                                                                       "cancel",
                                                                       "compression_error",
                                                                       "connect_error",
                                                                       "calm",
                                                                       "inadequate_security",
                                                                       "http_1_1_required",
                                                                       "other"};
inline constexpr size_t kStreamResets = kStreamResetNames.size();

struct QueueStats {
  // Adds one queue.
  void Add(const net::LoopLoad::Stats& queue) {
    ++queues;
    longest_callback = std::max(longest_callback, queue.longest_callback);
    slow_callbacks += queue.slow_callbacks;
    busy += queue.busy;
  }

  absl::Duration longest_callback;                    // a callback blocks everything else of its queue while it runs
  int64_t slow_callbacks = 0;                         // callbacks of 5 ms or more since the start
  int64_t queues = 0;                                 // each with a thread
  absl::Duration busy;                                // time in callbacks since the start, of all queues
  int64_t calls = 0;                                  // calls that have arrived and are not over
  int64_t watchers = 0;                               // streams of WatchSession
  int64_t idle_streams_ended = 0;                     // since the start, so that calls find a place
  std::array<int64_t, kTransportRefusals> refused{};  // calls since the start, by TransportRefusal
  std::array<int64_t, kStreamResets> resets{};        // streams that the server has reset, by kStreamResetNames
  int64_t waiting_bytes = 0;                          // that peers have sent and nobody has asked for
  int64_t at_stream_limit = 0;                        // connections whose peers may open no more calls now
};

}  // namespace normd

#endif  // NORMD_SERVER_RPC_EDGE_QUEUE_STATS_H_
