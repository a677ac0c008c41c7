#include "server/rpc/transport/transport_options.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>
#include <thread>

namespace normd {

int DefaultQueues() {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores / 2, 1, 8);
}

}  // namespace normd

namespace normd::rpc {
namespace {

constexpr int kSecondMs = 1000;

// Descriptors kept free of connections for everything else: listeners, the store, shared memory, and a margin.
constexpr int64_t kReservedDescriptors = 64;
// An idle connection costs about 50 KiB of gRPC's memory, so more connections than this need the option.
constexpr int64_t kDefaultMaxConnections = 8192;
// A call costs about 15 KiB of gRPC's memory before its message comes.
constexpr int64_t kBytesPerCall = 16 << 10;
constexpr int64_t kMinMaxCalls = 1024;

int64_t DescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kDefaultMaxConnections * 2;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<int>::max()));
}

}  // namespace

ConnectionLimits LimitsOfConnections(const GrpcServerOptions& options) {
  const int64_t descriptors = DescriptorLimit();
  // At most half of the descriptors is kept free, so that even a small limit leaves some for connections.
  const int64_t room = std::max<int64_t>(descriptors - std::min(kReservedDescriptors, descriptors / 2), 1);
  const int64_t wanted = options.max_connections > 0 ? options.max_connections : kDefaultMaxConnections;
  ConnectionLimits limits;
  limits.max_connections = static_cast<int>(std::min(wanted, room));
  limits.max_per_address = options.max_connections_per_peer > 0
                               ? std::min(options.max_connections_per_peer, limits.max_connections)
                               : std::max(limits.max_connections / 2, 1);
  return limits;
}

DispatchLimits LimitsOfCalls(const GrpcServerOptions& options) {
  const int64_t calls = std::max(kMinMaxCalls, options.max_in_flight_bytes / kBytesPerCall);
  return {.max_calls_per_connection = ConcurrentStreams(options),
          .max_calls = static_cast<int>(std::min<int64_t>(calls, std::numeric_limits<int>::max()))};
}

absl::Duration HandOverTimeout(const GrpcServerOptions& options) {
  return options.certificates == nullptr ? options.setup_timeout : options.setup_timeout / 2;
}

TransferWatch::Options TransferOptions(const GrpcServerOptions& options) {
  return {.limits = {.grace = options.message_timeout, .bytes_per_second = options.min_message_rate},
          .max_message_bytes = options.max_message_bytes,
          // The budget, the messages that wait in the read limiter, and the windows of a few streams.
          .max_held_bytes = options.max_in_flight_bytes / 4 * 7 + (int64_t{24} << 20),
          // With the memory that the server has before its first call, a little less than twice the budget and 64 MiB.
          .max_growth_bytes = options.max_in_flight_bytes * 2 + (int64_t{16} << 20)};
}

void SetTransportLimits(const GrpcServerOptions& options, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  builder.SetMaxSendMessageSize(-1);
  // grpc::ResourceQuota is not used: once a quota is exceeded, gRPC 1.51 wakes its reclaimer on whatever thread
  // releases a slice, and on our threads, which lack gRPC's context, that dereferences a null pointer. The transfer
  // watch bounds memory instead.
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, options.max_metadata_bytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, ConcurrentStreams(options));
  // A connection reads into a block of this size, which lives as long as any message with a part in the block. With 64
  // connections and 512 calls of 1 MiB in flight, memory was 1.1 GiB with gRPC's own limit of 4 MiB and 0.4 GiB with
  // this one, and no message was slower.
  builder.AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, 256 << 10);
  // Compressed requests are refused, because tensors hardly compress, and a small message must not expand to a large
  // one.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetDefaultCompressionAlgorithm(GRPC_COMPRESS_NONE);
  // These find dead peers within minutes, and let clients behind middleboxes that close idle connections ping, but not
  // flood.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 120 * kSecondMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20 * kSecondMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Of the client's half of the set-up the accept loop has seen all, or with TLS the ClientHello; this option bounds
  // the rest, up to the client's SETTINGS.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(absl::ToInt64Milliseconds(HandOverTimeout(options))));
  if (options.max_connection_age < absl::Hours(24 * 20)) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                               static_cast<int>(absl::ToInt64Milliseconds(options.max_connection_age)));
  }
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10 * kSecondMs);
}

}  // namespace normd::rpc
