// What can be set of the gRPC side, and limits that are no options. Plain values.
#ifndef NORMD_SERVER_RPC_TRANSPORT_SERVER_OPTIONS_H_
#define NORMD_SERVER_RPC_TRANSPORT_SERVER_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/rpc/transport/observer.h"

namespace normd {

class RegionTable;

// One line of Describe's devices.
struct DeviceInfo {
  std::string name;  // "cpu", "cuda:0"
  bool usable = false;
  std::string detail;  // what it is, or why it is not used
};

// One thread each, for half of the cores. Two on two cores halved what 4 KiB calls reach (49k against 87k/s), and
// beside 16 MiB calls their p50 and p99, too, were worse (139 us, 8.5 ms against 63 us, 3.8 ms).
int DefaultQueues();

struct GrpcServerOptions {
  // "127.0.0.1:8001", "[::1]:0", "unix:/run/normd/normd.sock"; port 0: any free
  std::vector<std::string> listeners = {};
  int queues = 0;  // completion queues, one thread each; 0: DefaultQueues()
  int64_t max_message_bytes = int64_t{64} << 20;
  // Of all requests being held and their replies; beyond it RESOURCE_EXHAUSTED.
  int64_t max_in_flight_bytes = int64_t{288} << 20;
  int64_t max_caller_bytes = 0;                 // of one connection; 0: 15/16 of that: eight calls of 16 MiB
  int64_t max_tensor_bytes = int64_t{1} << 30;  // of one that travels in chunks, where that much can be in flight
  // Of one connection; 0: 16, or 8 where messages may have over 4 MiB. 64 x 16 MiB in flight peaked at 445 MiB with 8,
  // 601 MiB with 16, 1.4 GiB unlimited.
  int max_concurrent_streams = 0;
  // Of all peers, and of one: an address, or a user of the Unix socket. 0: what suits the limit of descriptors, and
  // half of that.
  int max_connections = 0;
  int max_connections_per_peer = 0;
  absl::Duration setup_timeout = absl::Seconds(10);              // of a new connection, for its half of HTTP/2's set-up
  absl::Duration max_connection_age = absl::InfiniteDuration();  // then it is asked to end; its calls go on
  absl::Duration message_timeout = absl::Seconds(10);  // how long a message that has begun may make no progress
  int64_t min_message_rate = int64_t{1} << 20;         // bytes a second that it must make after that
  // How long a call that has said how large its message is waits for room before it is refused.
  absl::Duration max_wait_for_room = absl::ZeroDuration();
  int max_stream_calls = 16;  // of one NormalizeStream, decoded and not yet answered
  int max_metadata_bytes = 16 << 10;
  int64_t max_batch_items = 4096;
  int64_t export_chunk_bytes = int64_t{256} << 10;  // 64 KiB to 1 MiB
  RegionTable* regions = nullptr;                   // shared memory that callers may register and name; null: none
  bool shared_memory_anywhere = false;              // and not only those of Unix sockets
  bool reflection = true;
  std::string server_version = {};
  std::vector<DeviceInfo> devices = {};
  std::function<std::string()> calibration = {};  // how AUTO places work, for Describe; null: on the CPU
  RpcObserver observer = {};
};

}  // namespace normd

namespace normd::rpc {

// Data of one Chunk, of an import and of a tensor.
inline constexpr int64_t kMaxChunkBytes = int64_t{1} << 20;

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_SERVER_OPTIONS_H_
