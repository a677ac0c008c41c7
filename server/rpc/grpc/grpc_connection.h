// A connection of gRPC's transport: adds an account of the messages that gRPC holds for it, and the peer's certificate,
// which gRPC shows with each call.
// In the path: GrpcTransport makes it; calls find it by gRPC's name of their peer. Threads: safe from any thread.
#ifndef NORMD_SERVER_RPC_GRPC_GRPC_CONNECTION_H_
#define NORMD_SERVER_RPC_GRPC_GRPC_CONNECTION_H_

#include <cstdint>

#include "absl/time/time.h"
#include "server/rpc/edge/connection.h"
#include "server/rpc/grpc/delivery_account.h"
#include "server/rpc/grpc/grpc_tls_peer.h"

namespace normd::rpc {

class GrpcConnection final : public Connection {
 public:
  using Connection::Connection;

  TlsPeerMemory& tls_peer() { return tls_peer_; }

  // Calls report here the beginning, the end, the bytes and the loss of each incoming message; see DeliveryAccount.
  void BeginMessage() { delivery_.Begin(); }
  void EndMessage(bool complete);
  void DeliverBytes(int64_t bytes) { delivery_.Deliver(bytes); }
  void LoseMessage(absl::Time now) { delivery_.Lose(now); }
  int open_messages() const override { return delivery_.open(); }
  // The bytes of incomplete messages that gRPC holds for this connection; 0 where they cannot be measured.
  DeliveryAccount::Bounds UndeliveredBytes(absl::Time now);

 private:
  DeliveryAccount delivery_;
  TlsPeerMemory tls_peer_;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_GRPC_GRPC_CONNECTION_H_
