// Who makes a call: a name and the tenant that the name belongs to.
// In the path: the dispatcher's access check gives every call its identity before the call's route starts; services
// take the tenant from it, never from a field of a message.
// Ownership and threads: immutable and shared, by all calls of a connection or of a token.
#ifndef NORMD_SERVER_SECURITY_IDENTITY_H_
#define NORMD_SERVER_SECURITY_IDENTITY_H_

#include <memory>
#include <string>

namespace normd {

// Who makes a call.
struct Identity {
  // "uri:spiffe://prod/trainer", "dns:trainer.prod" or "cn:trainer" by a certificate; "token:ci-trainer" by a token;
  // "uid:1000" over a Unix socket; else "anonymous".
  std::string name;
  std::string tenant;  // a-z 0-9 -, at most 63; empty: the default tenant
};

using IdentityPtr = std::shared_ptr<const Identity>;

}  // namespace normd

#endif  // NORMD_SERVER_SECURITY_IDENTITY_H_
