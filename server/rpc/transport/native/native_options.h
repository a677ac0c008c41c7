// The settings of the native transport. In the path: beside it; set once at the start. Plain values.
#ifndef NORMD_SERVER_RPC_TRANSPORT_NATIVE_NATIVE_OPTIONS_H_
#define NORMD_SERVER_RPC_TRANSPORT_NATIVE_NATIVE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/time/time.h"
#include "server/base/buffer.h"
#include "server/rpc/transport/connection_stats.h"
#include "server/rpc/transport/rate_guard.h"

namespace normd {

class ServerCertificates;

}  // namespace normd

namespace normd::rpc {

struct NativeOptions {
  int queues = 1;
  int64_t max_message_bytes = int64_t{64} << 20;
  int max_concurrent_streams = 16;  // of one connection
  int64_t max_metadata_bytes = 16 << 10;
  double max_cancels_per_second = kResetsPerSecond;  // of one connection
  // With TLS, for the handshake and the client's SETTINGS, each of which has half of it.
  absl::Duration setup_timeout = absl::Seconds(10);
  absl::Duration max_connection_age = absl::InfiniteDuration();   // then the peer is asked to reconnect
  absl::Duration max_connection_idle = absl::InfiniteDuration();  // without a call; then the same
  absl::Duration keepalive_interval = absl::Seconds(120);         // of silence, after which the peer is pinged
  absl::Duration keepalive_timeout = absl::Seconds(20);           // for its answer
  absl::Duration unread_timeout = absl::Seconds(60);              // in which a peer must read what waits for its socket
  // The memory of metadata and messages that came before anybody asked for them, of all peers; one may have half of it.
  int64_t max_waiting_bytes = int64_t{72} << 20;
  const ServerCertificates* certificates = nullptr;  // of TCP connections; borrowed; null: they are plain text
  // Whether clients without a certificate are refused, where `certificates` has a CA for theirs.
  bool require_client_certificate = true;
  BufferPool* buffers = nullptr;  // of messages; borrowed; null: malloc
  // Counts connections that the transport closes for what their peers do; may be null.
  std::function<void(RefusedFor)> count_closed = {};
  // Hears of TLS handshakes that failed, on the loops' threads: see RpcObserver. May be null.
  std::function<void(const std::string& peer, const std::string& why)> on_handshake_failed = {};
  // Hears of requests and connections that nghttp2 ends because they break HTTP/2's rules, on the loops' threads; `why`
  // has no values of header fields. May be null.
  std::function<void(const std::string& peer, const std::string& why)> on_protocol_error = {};
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_NATIVE_NATIVE_OPTIONS_H_
