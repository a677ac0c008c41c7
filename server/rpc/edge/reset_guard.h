// Bounds how often a peer may reset calls, or cause the server to reset them.
// In the path: each connection has two guards: one for resets from the peer, one for calls that the peer cancels.
// Thread-compatible.
#ifndef NORMD_SERVER_RPC_EDGE_RESET_GUARD_H_
#define NORMD_SERVER_RPC_EDGE_RESET_GUARD_H_

#include <algorithm>

#include "server/net/rate_guard.h"

namespace normd::rpc {

// How many calls a peer may cancel a second, unless --max_cancels_per_second says otherwise: threads that give up at
// once cancel two thousand a second from Python, and a flood forty thousand, at 12 us of CPU each. So this is 6 % of a
// core for each connection.
inline constexpr double kResetsPerSecond = 5000;
// The least burst. Otherwise it is the number allowed in a second.
inline constexpr double kResetBurst = 1000;
// The number of resets that a call beyond the limit counts as. Clients open up to a hundred calls before they have read
// the limit; after that they know it.
inline constexpr double kWeightOfExcess = 5;

inline net::RateGuard ResetGuard(double per_second) { return {std::max(kResetBurst, per_second), per_second}; }

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_EDGE_RESET_GUARD_H_
