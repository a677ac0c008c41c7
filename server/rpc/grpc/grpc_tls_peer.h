// Reads from gRPC what TLS says of the peer of a call.
// In the path: once for each call, at its arrival. Threads: safe from any thread.
#ifndef NORMD_SERVER_RPC_GRPC_GRPC_TLS_PEER_H_
#define NORMD_SERVER_RPC_GRPC_GRPC_TLS_PEER_H_

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"
#include "server/net/tls_peer.h"

struct grpc_call;

namespace normd::rpc {

// The peer of one connection, remembered together with the security context that it was read from.
class TlsPeerMemory {
 public:
  // The peer read from `context`; null if none was, or another context was remembered last. After a reuse of the peer's
  // address, late calls of the connection before may still come, and their context differs.
  net::TlsPeerPtr Find(const void* context) const {
    MutexLock lock(mu_);
    return context_.get() == context ? peer_ : nullptr;
  }
  // Keeps the context, so that no other one can have its address.
  void Remember(std::shared_ptr<const void> context, net::TlsPeerPtr peer) {
    MutexLock lock(mu_);
    context_ = std::move(context);
    peer_ = std::move(peer);
  }

 private:
  mutable Mutex mu_;
  std::shared_ptr<const void> context_ ABSL_GUARDED_BY(mu_);
  net::TlsPeerPtr peer_ ABSL_GUARDED_BY(mu_);
};

// The peer of `call`, remembered in the `memory` of its connection; never null.
net::TlsPeerPtr FindTlsPeer(grpc_call* call, TlsPeerMemory& memory);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_GRPC_GRPC_TLS_PEER_H_
