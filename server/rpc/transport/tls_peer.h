// What the transport's security says of the peer of a connection: whether the connection is encrypted, and the name in
// the peer's certificate.
// In the path: a stream asks at its arrival; the answer is worked out once per connection.
// Ownership: shared by the connection and its streams. Threads: everything is safe from any thread.
#ifndef NORMD_SERVER_RPC_TRANSPORT_TLS_PEER_H_
#define NORMD_SERVER_RPC_TRANSPORT_TLS_PEER_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"
#include "server/security/access_control.h"

struct grpc_auth_context;
struct grpc_call;

namespace normd::rpc {

struct TlsPeer {
  bool is_encrypted = false;
  // "uri:spiffe://prod/trainer", "dns:trainer.prod" or "cn:trainer": the first URI among the certificate's alternative
  // names, else the first DNS name, else the common name. Empty without a certificate, and never empty with one.
  std::string certificate_name;
  // What the access check remembers for the calls of this connection. It is kept here, and not with the address, so
  // that no call is taken for one of the connection that had the address before.
  mutable AccessMemory access_memory;
};

using TlsPeerPtr = std::shared_ptr<const TlsPeer>;

// The peer of one connection, remembered.
class TlsPeerCache {
 public:
  // The peer of `call`; never null. What is remembered counts only if it is of the call's own connection, which gRPC's
  // context tells: after a reuse of the peer's address, late calls of the connection before may still come.
  TlsPeerPtr Find(grpc_call* call);

 private:
  Mutex mu_;
  // The context is kept so that no other one can have its address.
  std::shared_ptr<grpc_auth_context> context_ ABSL_GUARDED_BY(mu_);
  TlsPeerPtr peer_ ABSL_GUARDED_BY(mu_);
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_TLS_PEER_H_
