#include "server/rpc/edge/transport_options.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>

namespace normd::rpc {
namespace {

// Descriptors kept free of connections for everything else: listeners, the store, shared memory, and a margin.
constexpr int64_t kReservedDescriptors = 64;
// An idle connection costs 16 to 50 KiB, by the transport and with TLS: more connections than this need the option.
constexpr int64_t kDefaultMaxConnections = 8192;
constexpr int kMinKeptConnections = 16;
// A call costs 7 KiB before its message comes, and about 15 on gRPC's transport.
constexpr int64_t kBytesPerCall = 16 << 10;
constexpr int64_t kMinMaxCalls = 1024;

int64_t DescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kDefaultMaxConnections * 2;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<int>::max()));
}

}  // namespace

ConnectionLimits LimitsOfConnections(const RpcOptions& options) {
  const int64_t descriptors = DescriptorLimit();
  // At most half of the descriptors is kept free, so that even a small limit leaves some for connections.
  const int64_t room = std::max<int64_t>(descriptors - std::min(kReservedDescriptors, descriptors / 2), 1);
  const int64_t wanted = options.max_connections > 0 ? options.max_connections : kDefaultMaxConnections;
  ConnectionLimits limits;
  limits.max_connections = static_cast<int>(std::min(wanted, room));
  // A sixteenth, and at least 16 where that leaves three quarters for all.
  limits.kept = std::min(std::max(kMinKeptConnections, limits.max_connections / 16), limits.max_connections / 4);
  limits.max_per_address = options.max_connections_per_peer > 0
                               ? std::min(options.max_connections_per_peer, limits.max_connections)
                               : std::max(limits.max_connections / 2, 1);
  limits.resets_per_second = options.max_cancels_per_second;
  return limits;
}

DispatchLimits LimitsOfCalls(const RpcOptions& options) {
  const int64_t calls = std::max(kMinMaxCalls, options.max_in_flight_bytes / kBytesPerCall);
  const int max_calls = static_cast<int>(std::min<int64_t>(calls, std::numeric_limits<int>::max()));
  return {.max_calls_per_connection = ConcurrentStreams(options),
          .calls = {.max_calls = max_calls, .max_calls_per_peer = max_calls / 2, .kept_for_unix = max_calls / 16}};
}

TransferLimits LimitsOfTransfers(const RpcOptions& options) {
  return {.grace = options.message_timeout, .bytes_per_second = options.min_message_rate};
}

}  // namespace normd::rpc
