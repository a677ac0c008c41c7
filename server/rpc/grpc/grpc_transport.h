// The transport on gRPC's completion queues: makes a grpc::Server of them, gives it connections, and takes its calls.
// In the path: as in RpcTransport.
// Ownership: borrows all pointers, which must outlive it.
// Threads: one for each queue; otherwise as in RpcTransport.
#ifndef NORMD_SERVER_RPC_GRPC_GRPC_TRANSPORT_H_
#define NORMD_SERVER_RPC_GRPC_GRPC_TRANSPORT_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>

#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "server/net/loop_load.h"
#include "server/rpc/edge/rpc_options.h"
#include "server/rpc/edge/transport.h"
#include "server/rpc/grpc/newcomers.h"
#include "server/rpc/grpc/oversized_watch.h"
#include "server/rpc/grpc/tls_credentials.h"

namespace normd::rpc {

// The time from accept to the hand-over to gRPC. With TLS gRPC needs time for the handshake after that: half for each,
// so that the two together take setup_timeout.
absl::Duration HandOverTimeout(const RpcOptions& options);

// Sets gRPC's own limits: sizes of messages and metadata, streams, read chunks, keepalive, age, set-up time; and turns
// compression off.
void SetTransportLimits(const RpcOptions& options, grpc::ServerBuilder& builder);

class GrpcTransport : public RpcTransport {
 public:
  // Stop may be called once the LiveCalls of Start's `calls`, which also count the calls that wait for an RPC, count
  // nothing.
  GrpcTransport(const RpcOptions* options, ConnectionTable* connections, const Admission* admission)
      : options_(options),
        oversized_(*options, admission),
        newcomers_(
            {.setup_timeout = HandOverTimeout(*options), .tls = options->certificates != nullptr}, connections,
            [this](UniqueFd fd, int listener_fd, bool is_unix) { HandOver(std::move(fd), listener_fd, is_unix); }) {}

  // Returns UNAVAILABLE if gRPC makes no server.
  absl::Status Start(const CallHost& calls, OnCall on_call) override;
  ConnectionPtr MakeConnection(Connection::Facts facts, std::shared_ptr<PeerCalls> peer_calls) override {
    return std::make_shared<GrpcConnection>(std::move(facts), std::move(peer_calls));
  }
  void Adopt(UniqueFd fd, const net::ListeningSocket& listener, ConnectionPtr connection) override;
  // Closes the connections that gRPC does not have yet. gRPC 1.51 sends GOAWAY only when it also cancels new calls.
  void Drain() override;
  void Shutdown() override;
  void LookAt(const std::vector<std::shared_ptr<RpcCall>>& in_progress) override { oversized_.Look(in_progress); }
  bool serves() const override;
  void Stop() override;
  QueueStats TakeStats() override;

 private:
  // Gives gRPC a connection whose first bytes are right.
  void HandOver(UniqueFd fd, int listener_fd, bool is_unix);
  void Accept(grpc::ServerCompletionQueue* queue);
  void Serve(grpc::ServerCompletionQueue* queue, net::LoopLoad* load);

  const RpcOptions* const options_;
  OversizedWatch oversized_;
  CallHost calls_;  // constant after Start, as the next
  OnCall on_call_;
  grpc::AsyncGenericService service_;
  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues_;
  std::deque<net::LoopLoad> loads_;                  // of the queues, in their order
  std::shared_ptr<TlsCredentials> tls_credentials_;  // null without TLS
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  Newcomers newcomers_;
  std::vector<std::thread> threads_;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_GRPC_GRPC_TRANSPORT_H_
