// The transport on gRPC's completion queues: makes a grpc::Server of them, gives it connections, and takes its calls.
// In the path: as in RpcTransport.
// Ownership: borrows all pointers, which must outlive it.
// Threads: one for each queue; otherwise as in RpcTransport.
#ifndef NORMD_SERVER_RPC_TRANSPORT_GRPC_GRPC_TRANSPORT_H_
#define NORMD_SERVER_RPC_TRANSPORT_GRPC_GRPC_TRANSPORT_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "server/rpc/transport/grpc/tls_credentials.h"
#include "server/rpc/transport/live_streams.h"
#include "server/rpc/transport/queue_load.h"
#include "server/rpc/transport/server_options.h"
#include "server/rpc/transport/transport.h"

namespace normd::rpc {

// Sets gRPC's own limits: sizes of messages and metadata, streams, read chunks, keepalive, age, set-up time; and turns
// compression off.
void SetTransportLimits(const GrpcServerOptions& options, grpc::ServerBuilder& builder);

class GrpcTransport : public RpcTransport {
 public:
  // `live` counts the calls that wait for an RPC. Stop may be called once it counts nothing.
  GrpcTransport(const GrpcServerOptions* options, ConnectionTable* connections, LiveStreams* live)
      : options_(options), connections_(connections), live_(live) {}

  // Returns UNAVAILABLE if gRPC makes no server.
  absl::Status Start(OnCall on_call) override;
  void Adopt(int fd, int listener_fd, bool is_unix, ConnectionPtr connection) override;
  // Has no effect: gRPC 1.51 sends GOAWAY only when it also cancels new calls.
  void Drain() override {}
  void Shutdown() override;
  void Stop() override;
  QueueStats TakeStats() override;

 private:
  void Accept(grpc::ServerCompletionQueue* queue);
  void Serve(grpc::ServerCompletionQueue* queue, QueueLoad* load);

  const GrpcServerOptions* const options_;
  ConnectionTable* const connections_;
  LiveStreams* const live_;
  OnCall on_call_;  // constant after Start
  grpc::AsyncGenericService service_;
  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues_;
  std::deque<QueueLoad> loads_;                      // of the queues, in their order
  std::shared_ptr<TlsCredentials> tls_credentials_;  // null without TLS
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::thread> threads_;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_GRPC_GRPC_TRANSPORT_H_
