// One RPC on a completion queue of gRPC.
// In the path: GrpcTransport makes calls that wait for an RPC; those that have one go to the dispatcher.
// Ownership: as in TransportCall; a call that waits is owned by its tag.
// Threads: as in TransportCall; callbacks run on the thread of the call's queue.
#ifndef NORMD_SERVER_RPC_TRANSPORT_GRPC_GRPC_CALL_H_
#define NORMD_SERVER_RPC_TRANSPORT_GRPC_GRPC_CALL_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string>

#include "server/rpc/transport/grpc/tag.h"
#include "server/rpc/transport/live_streams.h"
#include "server/rpc/transport/transport_call.h"

namespace normd::rpc {

class GrpcCall : public TransportCall {
 public:
  using OnArrival = absl::AnyInvocable<void(std::unique_ptr<GrpcCall>)>;

  // Waits for one RPC. `on_arrival` gets it at the headers, or null when the server shuts down. `live` counts the call
  // as a stream that exists, from now on. Borrows `connections`.
  static void Accept(grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue, LiveStreams* live,
                     ConnectionTable* connections, OnArrival on_arrival);

  const std::string& method() const override { return context_.method(); }
  void VisitMetadata(absl::FunctionRef<void(std::string_view key, std::string_view value)> visit) const override;
  absl::Time deadline() const override;
  const ConnectionPtr& connection() const override { return connection_; }
  const net::TlsPeerPtr& tls_peer() const override { return tls_peer_; }

  void OnOver(OnDone on_done) override;
  // gRPC tells a message's size only when it has all of the message.
  void ReadSize(OnSize on_size) override { on_size(std::nullopt); }
  void Read(OnRead on_read) override;
  void ReadHead(OnRead on_read) override { Read(std::move(on_read)); }
  void Write(MessageBytes message, Callback written) override;
  void Finish(RpcStatus status, Trailers trailers, Callback written) override;
  void WriteAndFinish(MessageBytes message, RpcStatus status, Trailers trailers, Callback written) override;
  void Cancel() override { context_.TryCancel(); }

 private:
  explicit GrpcCall(LiveStreams* live) : presence_(live) {}
  void HandleArrival(ConnectionTable* connections);
  void AddTrailers(const Trailers& trailers);
  // Arms the tag of writes.
  void* Written(Callback written);

  const LiveStreams::Presence presence_;
  // Constant after the arrival.
  ConnectionPtr connection_;
  net::TlsPeerPtr tls_peer_;

  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  Tag arrival_tag_, over_tag_, read_tag_, write_tag_;
  grpc::ByteBuffer incoming_;  // used only by the Read in progress
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_GRPC_GRPC_CALL_H_
