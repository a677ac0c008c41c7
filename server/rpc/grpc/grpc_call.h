// One RPC on a completion queue of gRPC.
// In the path: GrpcTransport makes calls that wait for an RPC; those that have one go to the dispatcher.
// Ownership: as in RpcCall; a call that waits is owned by its tag.
// Threads: as in RpcCall; callbacks run on the thread of the call's queue.
#ifndef NORMD_SERVER_RPC_GRPC_GRPC_CALL_H_
#define NORMD_SERVER_RPC_GRPC_GRPC_CALL_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string>

#include "server/rpc/edge/live_calls.h"
#include "server/rpc/edge/rpc_call.h"
#include "server/rpc/grpc/grpc_connection.h"
#include "server/rpc/grpc/tag.h"

namespace normd::rpc {

class GrpcCall final : public RpcCall {
 public:
  ~GrpcCall() override { DropCallbacks(); }

  using OnArrival = absl::AnyInvocable<void(std::shared_ptr<GrpcCall>)>;

  // Waits for one RPC. `on_arrival` gets it at the headers, or null when the server shuts down. `host.live` counts the
  // call as one that exists, from now on.
  static void Accept(grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue, const CallHost& host,
                     OnArrival on_arrival);

  const std::string& method() const override { return context_.method(); }
  void VisitMetadata(absl::FunctionRef<void(std::string_view key, std::string_view value)> visit) const override;
  absl::Time deadline() const override;
  const net::TlsPeerPtr& tls_peer() const override { return tls_peer_; }
  void Cancel() override { context_.TryCancel(); }

 private:
  void HandleArrival(const CallHost& host);
  // gRPC tells a message's size only when it has all of the message.
  void StartReadSize() override { HandleSize(std::nullopt); }
  void StartRead(bool is_counted) override;
  void StartReadHead() override { StartRead(/*is_counted=*/true); }
  void StartWrite(MessageBytes message) override;
  void StartFinish(RpcEnd end) override;
  void StartWriteAndFinish(MessageBytes message, RpcEnd end) override;
  void NoteLoss() override;
  void AddTrailers(const Trailers& trailers);
  // Arms the tag of writes.
  void* Written();

  // Constant after the arrival.
  std::shared_ptr<GrpcConnection> connection_;
  net::TlsPeerPtr tls_peer_;

  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  Tag arrival_tag_, over_tag_, read_tag_, write_tag_;
  grpc::ByteBuffer incoming_;  // used only by the Read in progress
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_GRPC_GRPC_CALL_H_
