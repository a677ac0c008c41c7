#include "tests/bench/transport/echo_server.h"

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/status_macros.h"
#include "server/net/listening_socket.h"
#include "server/rpc/edge/admission.h"
#include "server/rpc/edge/transport_options.h"
#include "server/rpc/grpc/grpc_transport.h"
#include "server/rpc/http2/http2_transport.h"

namespace normd::bench {
namespace {

constexpr int64_t kIdleBytes = int64_t{256} << 20;  // that the pool keeps: sixteen messages of 16 MiB

// One call. Of a stream, the next message is read while the one before it is written.
class EchoedCall : public std::enable_shared_from_this<EchoedCall> {
 public:
  explicit EchoedCall(std::shared_ptr<rpc::RpcCall> call)
      : call_(std::move(call)), is_stream_(std::string_view(call_->method()).ends_with("Stream")) {}

  void Begin() {
    // The call lives until it is over, as the server's own do.
    call_->WhenOver([self = shared_from_this()](const absl::Status&) {});
    Read();
  }

 private:
  void Read() {
    call_->Read([self = shared_from_this()](std::optional<MessageBytes> message) {
      self->message_ = std::move(message);
      self->ended_ = !self->message_.has_value();
      self->Answer();
    });
  }

  void Answer() {
    if (writing_) return;
    if (ended_) return call_->Finish(absl::OkStatus(), [self = shared_from_this()] {});
    if (!message_.has_value()) return;
    MessageBytes message = *std::exchange(message_, std::nullopt);
    if (!is_stream_) return call_->WriteAndFinish(std::move(message), [self = shared_from_this()] {});
    writing_ = true;
    call_->Write(std::move(message), [self = shared_from_this()] {
      self->writing_ = false;
      self->Answer();
    });
    Read();
  }

  const std::shared_ptr<rpc::RpcCall> call_;
  const bool is_stream_;
  std::optional<MessageBytes> message_;  // that waits for the one before it to be written
  bool ended_ = false;
  bool writing_ = false;
};

RpcOptions Options(TransportKind transport) {
  RpcOptions options;
  options.transport = transport;
  options.queues = 1;
  options.max_concurrent_streams = 16;
  return options;
}

std::unique_ptr<rpc::RpcTransport> MakeTransport(const RpcOptions& options, rpc::ConnectionTable* connections,
                                                 BufferPool* buffers, const rpc::Admission* admission) {
  if (options.transport == TransportKind::kGrpc) {
    return std::make_unique<rpc::GrpcTransport>(&options, connections, admission);
  }
  return std::make_unique<rpc::Http2Transport>(&options, connections, buffers);
}

}  // namespace

EchoServer::EchoServer(TransportKind transport)
    : options_(Options(transport)),
      buffers_(BufferPool::Create(kIdleBytes)),
      connections_(rpc::LimitsOfConnections(options_)),
      transport_(MakeTransport(options_, &connections_, buffers_.get(), &admission_)),
      accept_loop_({}, &connections_, transport_.get()) {}

absl::StatusOr<std::unique_ptr<EchoServer>> EchoServer::Start(TransportKind transport, const std::string& listen) {
  std::unique_ptr<EchoServer> server(new EchoServer(transport));
  NORMD_ASSIGN_OR_RETURN(std::vector<net::ListeningSocket> sockets, net::Listen(listen));
  server->port_ = sockets.front().port();
  NORMD_RETURN_IF_ERROR(server->transport_->Start(
      {&server->live_, &server->connections_},
      [](std::shared_ptr<rpc::RpcCall> call) { std::make_shared<EchoedCall>(std::move(call))->Begin(); }));
  NORMD_RETURN_IF_ERROR(server->accept_loop_.Start(std::move(sockets)));
  return server;
}

}  // namespace normd::bench
