// What the transport's security says of the peer of a connection: whether the connection is encrypted, and the name in
// the peer's certificate.
// In the path: a transport tells it of each call; the answer is worked out once per connection.
// Ownership: shared by the connection and its streams. Threads: everything is safe from any thread.
#ifndef NORMD_SERVER_NET_TLS_PEER_H_
#define NORMD_SERVER_NET_TLS_PEER_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"
#include "server/security/access_control.h"

namespace normd::net {

struct TlsPeer {
  bool is_encrypted = false;
  // What IdentityName (server/security/certificate_names.h) makes of the certificate. Empty without a certificate, or
  // if IdentityNameProblem finds one.
  std::string certificate_name;
  // What the access check remembers for the calls of this connection. It is kept here, and not with the address, so
  // that no call is taken for one of the connection that had the address before.
  mutable AccessMemory access_memory;
};

using TlsPeerPtr = std::shared_ptr<const TlsPeer>;

// The peer of one connection, remembered together with the security context that it was read from.
class TlsPeerMemory {
 public:
  // The peer read from `context`; null if none was, or another context was remembered last. After a reuse of the peer's
  // address, late calls of the connection before may still come, and their context differs.
  TlsPeerPtr Find(const void* context) const {
    MutexLock lock(mu_);
    return context_.get() == context ? peer_ : nullptr;
  }
  // Keeps the context, so that no other one can have its address.
  void Remember(std::shared_ptr<const void> context, TlsPeerPtr peer) {
    MutexLock lock(mu_);
    context_ = std::move(context);
    peer_ = std::move(peer);
  }

 private:
  mutable Mutex mu_;
  std::shared_ptr<const void> context_ ABSL_GUARDED_BY(mu_);
  TlsPeerPtr peer_ ABSL_GUARDED_BY(mu_);
};

}  // namespace normd::net

#endif  // NORMD_SERVER_NET_TLS_PEER_H_
