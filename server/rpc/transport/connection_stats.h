// Counts of connections, for metrics. Plain values.
#ifndef NORMD_SERVER_RPC_TRANSPORT_CONNECTION_STATS_H_
#define NORMD_SERVER_RPC_TRANSPORT_CONNECTION_STATS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace normd {

// Why a connection was closed by the server.
enum class RefusedFor : uint8_t {
  kTotal,        // as many connections as there may be
  kAddress,      // as many of this peer
  kDescriptors,  // the process is out of descriptors
  kSetup,        // HTTP/2's set-up was not finished in time
  kForeign,      // not HTTP/2
  kFlood,        // more calls opened, or taken back, than a client that means well would
};
inline constexpr size_t kRefusedForCount = 6;

inline constexpr std::array<std::string_view, kRefusedForCount> kRefusedForNames = {"total", "peer",    "descriptors",
                                                                                    "setup", "foreign", "flood"};

struct ConnectionStats {
  int64_t open = 0;
  int64_t accepted = 0;
  std::array<int64_t, kRefusedForCount> refused{};
};

}  // namespace normd

#endif  // NORMD_SERVER_RPC_TRANSPORT_CONNECTION_STATS_H_
