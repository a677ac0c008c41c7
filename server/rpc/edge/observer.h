// How the rpc layer reports requests. Metrics and logs are attached here (server/wiring/telemetry.h), so that rpc knows
// neither.
// In the path: beside it, at the end of each request.
// Threads: the callbacks run on queue, backend and store threads, several at a time, and must not block.
#ifndef NORMD_SERVER_RPC_EDGE_OBSERVER_H_
#define NORMD_SERVER_RPC_EDGE_OBSERVER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/rpc/edge/audit_record.h"
#include "server/rpc/edge/call_trace.h"

namespace normd {

// How a connection carries bytes.
enum class Transport : uint8_t { kTcp, kTls, kUnix };
inline constexpr std::array<std::string_view, 3> kTransportNames = {"tcp", "tls", "unix"};
// What a connection speaks.
enum class Protocol : uint8_t { kGrpc };
inline constexpr std::array<std::string_view, 1> kProtocolNames = {"grpc"};

// The tenant of a call whose caller is not known.
inline constexpr int kNoTenant = -1;

// Where a request came from.
struct RequestOrigin {
  Transport transport = Transport::kTcp;
  Protocol protocol = Protocol::kGrpc;
  int tenant = 0;                    // as RpcObserver::tenant_index says; 0 is the default tenant; or kNoTenant
  const CallTrace* trace = nullptr;  // of the call, and lives as long as it; null in tests that have none
  // "/normd.v1.Normalizer/Normalize", as the caller wrote it; lives as long as the call.
  std::string_view path;
};

// One request. NormalizeStream reports one record for each item answered, and one more (without rows) for a stream that
// ended with an error. Health checks and reflection are not reported.
struct RequestRecord {
  // "Normalizer/Normalize"; "unknown" for a method that does not exist, so that callers cannot make new label values.
  std::string_view rpc;
  // "layer_norm"; "mixed" for a batch of several norms; empty where no norm is involved or the request was refused
  // early.
  std::string_view norm_method;
  RequestOrigin origin;
  bool is_stream_item = false;  // one of the answers of a stream
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string message;  // the error message; empty if OK
  std::string reason;   // of the error, as in server/base/error_reasons.h; empty if OK or without a reason of its own
  int64_t request_bytes = 0;
  int64_t response_bytes = 0;
  int64_t rows = 0;         // statistics groups computed
  int64_t batch_items = 0;  // items in a BatchNormalize request
  int64_t batch_items_failed = 0;
  // Where and how it was computed; only of calls whose trace wants details, and "mixed" for batches that differ.
  std::string_view device;  // "cpu"
  std::string kernel;
  // The phases, in order. A phase that a request does not have is 0.
  absl::Duration receive;  // from the headers until the message was complete, any wait for room included; 0 in a stream
  absl::Duration decode;
  absl::Duration queue;    // waits for a thread, for a session's record and for a turn to compute
  absl::Duration compute;  // on the device, with the device's own queue
  absl::Duration commit;   // until the step is durable
  absl::Duration encode;   // not of replies whose beginning is known
  absl::Duration write;    // from the hand-over to the transport until the transport has written the last byte
  // From the headers, or the arrival of a stream's message, until now: until the hand-over to the transport in
  // on_request_done, until the last byte was written in on_request_written.
  absl::Duration total;
};

// Functions that are empty are not called.
struct RpcObserver {
  // The number of a tenant in RequestOrigin; without this function, every tenant is 0. Runs once for each call.
  std::function<int(const std::string& tenant)> tenant_index;
  // Whether to trace a call whose caller has not decided. Runs once for each such call. Without this function no call
  // is traced, even if its caller asks for it.
  std::function<bool()> sample_trace;
  // The explanation in the trailers of a call whose caller asked for one: visible ASCII. Runs after on_request_done.
  std::function<std::string(const RequestRecord& record)> explain;
  // A request was answered. Runs just before the reply is handed to the transport, so a caller that has its reply finds
  // it counted.
  std::function<void(const RequestRecord& record)> on_request_done;
  // The reply was written, or never will be. Runs once for each request, after on_request_done.
  std::function<void(const RequestRecord& record)> on_request_written;
  // A version of a session was written to a stream of WatchSession, this long after the change that made it.
  std::function<void(absl::Duration lag)> on_version_sent;
  // Runs after every change with the bytes of requests now in flight.
  std::function<void(int64_t bytes)> on_bytes_in_flight;
  // A TLS handshake failed: the peer's address, and the reason as a clause. On the native transport alone: gRPC's
  // library has a log of its own.
  std::function<void(const std::string& peer, const std::string& why)> on_handshake_failed;
  // A connection was closed because of a limit: the limit in words, and the peer's address. At most once a minute for
  // each limit.
  std::function<void(std::string_view limit, const std::string& peer)> on_connection_limit;
  // HTTP/2's rules were broken, for which a request was refused or a connection ended: the peer's address, and what was
  // wrong, without values of header fields. On the native transport alone, as above.
  std::function<void(const std::string& peer, const std::string& why)> on_protocol_error;
  // Runs at the end of each call that is audited or was denied.
  AuditSink on_audit;
};

}  // namespace normd

#endif  // NORMD_SERVER_RPC_EDGE_OBSERVER_H_
