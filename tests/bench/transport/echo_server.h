// The echo of one transport: what comes in goes out again, and nothing is computed, admitted or counted. It stands on
// the interface that both transports have, so that two such servers differ in the transport alone.
// Threads: one calls; the transport has its own.
#ifndef NORMD_TESTS_BENCH_TRANSPORT_ECHO_SERVER_H_
#define NORMD_TESTS_BENCH_TRANSPORT_ECHO_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/base/buffer.h"
#include "server/rpc/edge/accept_loop.h"
#include "server/rpc/edge/admission.h"
#include "server/rpc/edge/connection.h"
#include "server/rpc/edge/live_calls.h"
#include "server/rpc/edge/rpc_options.h"
#include "server/rpc/edge/transport.h"

namespace normd::bench {

class EchoServer {
 public:
  // Listens and serves on one queue. Methods called *Stream send every message back, the others the first one.
  static absl::StatusOr<std::unique_ptr<EchoServer>> Start(TransportKind transport, const std::string& listen);

  int port() const { return port_; }

 private:
  explicit EchoServer(TransportKind transport);

  const RpcOptions options_;
  const std::shared_ptr<BufferPool> buffers_;
  const rpc::Admission admission_{{options_.max_in_flight_bytes, rpc::MaxCallerBytes(options_)}, nullptr};
  rpc::LiveCalls live_;
  rpc::ConnectionTable connections_;
  const std::unique_ptr<rpc::RpcTransport> transport_;
  rpc::AcceptLoop accept_loop_;
  int port_ = 0;
};

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_TRANSPORT_ECHO_SERVER_H_
