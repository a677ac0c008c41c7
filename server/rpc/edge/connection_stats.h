// Counts of connections, for metrics. In the path: beside it; ConnectionTable fills them. Plain values.
#ifndef NORMD_SERVER_RPC_EDGE_CONNECTION_STATS_H_
#define NORMD_SERVER_RPC_EDGE_CONNECTION_STATS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace normd {

// Why the server closed a connection, each of which counts once.
enum class RefusedFor : uint8_t {
  kTotal,        // the limit of all connections is reached
  kAddress,      // the limit of this peer's connections is reached
  kDescriptors,  // the process is out of descriptors
  kSetup,        // the peer did not finish HTTP/2's set-up in time
  kForeign,      // the peer does not speak HTTP/2
  kPlaintext,    // the peer speaks HTTP in plain text where TLS is spoken
  kTls,          // the peer speaks TLS where it is not spoken
  kFlood,        // the peer opens or cancels far more calls than an honest client, or makes the server work for nothing
  kProtocol,     // the peer broke HTTP/2's rules
  kStalled,      // the peer did not read its output, or did not finish what it had begun to send, in time
  kKeepalive,    // the peer was silent and did not answer a PING
  kAge,          // the connection reached its greatest age, and was drained
  kIdle,         // the connection was without a call for long, and was drained
  kMadeRoom,     // idle, and of the peer with the most connections, when another peer's came and all were taken
  kLeft,         // the peer itself left before it had finished HTTP/2's set-up
};
inline constexpr size_t kRefusedForCount = 15;

inline constexpr std::array<std::string_view, kRefusedForCount> kRefusedForNames = {
    "total",    "peer",    "descriptors", "setup", "foreign", "plaintext", "tls", "flood",
    "protocol", "stalled", "keepalive",   "age",   "idle",    "made_room", "left"};

struct ConnectionStats {
  int64_t open = 0;
  int64_t accepted = 0;
  int64_t without_call = 0;  // TLS connections that ended before their first call
  std::array<int64_t, kRefusedForCount> refused{};
};

}  // namespace normd

#endif  // NORMD_SERVER_RPC_EDGE_CONNECTION_STATS_H_
