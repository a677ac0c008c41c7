// The settings of the RPC side, most of which come from normd's options, and its fixed limits. One struct for all of
// it, handed down by const reference. In the path: beside it; server.cc fills the settings once at the start. Plain
// values.
#ifndef NORMD_SERVER_RPC_EDGE_RPC_OPTIONS_H_
#define NORMD_SERVER_RPC_EDGE_RPC_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/rpc/edge/observer.h"
#include "server/rpc/edge/reset_guard.h"
#include "server/security/identity.h"

namespace normd {

class AccessControl;
class RegionTable;
class ServerCertificates;
class TenantQuotaTable;

// One device, as Describe lists it.
struct DeviceInfo {
  std::string name;  // "cpu", "cuda:0"
  bool usable = false;
  std::string detail;  // what the device is, or why it is not used
};

// The default number of queues of a transport, each with one thread: one for every two cores, from 1 to 8. On two
// cores, two queues halved the rate of 4 KiB calls (49k against 87k/s); beside 16 MiB calls, their p50 and p99 were
// worse, too (139 us, 8.5 ms against 63 us, 3.8 ms).
int DefaultQueues();

// Which implementation of RpcTransport serves connections.
enum class TransportKind : uint8_t { kGrpc, kNative };

struct RpcOptions {
  TransportKind transport = TransportKind::kNative;
  // "127.0.0.1:8001", "[::1]:0", "unix:/run/normd/normd.sock"; port 0: any free port
  std::vector<std::string> listeners = {};
  // Of the TCP listeners, which then speak TLS and nothing else; borrowed; null: they speak plain text.
  const ServerCertificates* certificates = nullptr;
  // Whether clients without a certificate are refused, where `certificates` has a CA for theirs.
  bool require_client_certificate = true;
  int queues = 0;  // one thread each; 0: DefaultQueues()
  int64_t max_message_bytes = int64_t{64} << 20;
  // The budget of all requests in flight with their replies; calls beyond it get RESOURCE_EXHAUSTED.
  int64_t max_in_flight_bytes = int64_t{288} << 20;
  int64_t max_caller_bytes = 0;                 // of one connection; 0: 15/16 of the budget, eight calls of 16 MiB
  int64_t max_tensor_bytes = int64_t{1} << 30;  // of a tensor that travels in chunks, if the budget allows that much
  // Of one connection; 0: 16, or 8 where messages may have over 4 MiB. With 64 x 16 MiB in flight, memory peaked at
  // 445 MiB with 8 streams, 601 MiB with 16, and 1.4 GiB without a limit.
  int max_concurrent_streams = 0;
  // Of all peers, and of one peer, which is an address or a user of the Unix socket. 0: what suits the descriptor
  // limit, and half of that.
  int max_connections = 0;
  int max_connections_per_peer = 0;
  double max_cancels_per_second = rpc::kResetsPerSecond;  // of one connection; beyond it the connection ends
  absl::Duration setup_timeout = absl::Seconds(10);  // from accept to the client's SETTINGS, TLS's handshake included
  absl::Duration max_connection_age = absl::InfiniteDuration();   // then the peer is asked to reconnect; calls go on
  absl::Duration max_connection_idle = absl::InfiniteDuration();  // without a call; then the same
  absl::Duration keepalive_interval = absl::Seconds(120);         // of silence, after which the peer is pinged
  absl::Duration keepalive_timeout = absl::Seconds(20);           // for its answer
  absl::Duration message_timeout = absl::Seconds(10);  // how long a message that has begun may make no progress
  int64_t min_message_rate = int64_t{1} << 20;         // bytes a second, after message_timeout
  // How long a call that has announced its message's size waits for room before it is refused.
  absl::Duration max_wait_for_room = absl::ZeroDuration();
  int max_stream_calls = 16;  // calls of one NormalizeStream that are decoded and not yet answered
  int max_metadata_bytes = 16 << 10;
  // The memory for all peers' metadata and for messages that arrive before they are asked for; one peer may have half
  // of it. 0: a quarter of max_in_flight_bytes, and at least 16 MiB.
  int64_t max_waiting_bytes = 0;
  int64_t max_batch_items = 4096;
  int64_t export_chunk_bytes = int64_t{256} << 10;  // 64 KiB to 1 MiB
  RegionTable* regions = nullptr;                   // borrowed; null: no shared memory
  bool shared_memory_anywhere = false;              // true: callers over loopback may use it, too
  AccessControl* access = nullptr;                  // borrowed; null: everybody may call everything
  bool reflection = true;
  std::string server_version = {};
  std::string server_uid = {};   // for Describe: names this process
  std::string unix_socket = {};  // for Describe: the path of a listener that takes shared memory; empty: none
  std::vector<DeviceInfo> devices = {};
  std::function<std::string()> calibration = {};  // for Describe: how AUTO chooses devices; null: always the CPU
  RpcObserver observer = {};
  TenantQuotaTable* quotas = nullptr;  // borrowed; null: tenants have no limits of their own
};

}  // namespace normd

namespace normd::rpc {

// Returns INVALID_ARGUMENT naming the first option that is out of range.
absl::Status CheckOptions(const RpcOptions& options);

// The number of queues of a transport: the option, or DefaultQueues().
inline int Queues(const RpcOptions& options) { return options.queues != 0 ? options.queues : DefaultQueues(); }

// Bytes reserved for each byte of a message with tensors: the request, and a reply of the same size.
inline constexpr int64_t kBytesHeldPerMessageByte = 2;

// The most that a message can need for each of its bytes: the message, its reply, and a contiguous copy of its tensor.
// The budgets must have room for the largest message at this factor, so that every message can be served.
inline constexpr int64_t kMostBytesHeldPerMessageByte = 3;

// The number of concurrent calls of one connection: the option, or else a number that suits the largest message.
int ConcurrentStreams(const RpcOptions& options);

// The bytes that one caller may reserve: the option, or else 15/16 of the whole budget, and at least what the largest
// message needs.
int64_t MaxCallerBytes(const RpcOptions& options);

// The size of the largest tensor that can travel in chunks: at most the option, and at most half of what a caller may
// reserve, because the tensor's reply needs as much.
int64_t MaxTensorBytes(const RpcOptions& options);

// The most memory for metadata and for messages that arrive before they are asked for; not part of the budget.
int64_t MaxWaitingBytes(const RpcOptions& options);

// A caller may work on a reply before it reads the next one, so it has this many times the grace of one that sends.
inline constexpr int kPatienceForReaders = 6;
// How long a reply, or other output for a peer's socket, may stay unread.
absl::Duration UnreadTimeout(const RpcOptions& options);

// The limit on the data of one chunk, of an imported session as of a tensor.
inline constexpr int64_t kMaxChunkBytes = int64_t{1} << 20;

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_EDGE_RPC_OPTIONS_H_
