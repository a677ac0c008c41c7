// What the transport's security says of the peer of a connection: whether the connection is encrypted, and the name in
// the peer's certificate.
// In the path: a transport passes it on with each call; the answer is worked out once per connection.
// Ownership: shared by the connection and its streams. Threads: everything is safe from any thread.
#ifndef NORMD_SERVER_NET_TLS_PEER_H_
#define NORMD_SERVER_NET_TLS_PEER_H_

#include <memory>
#include <string>

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

}  // namespace normd::net

#endif  // NORMD_SERVER_NET_TLS_PEER_H_
