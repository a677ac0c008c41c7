// The access check of a call: who makes it, and whether the caller may.
// In the path: the dispatcher asks at the headers of every call, before its route starts. Safe from any thread.
#ifndef NORMD_SERVER_RPC_EDGE_ACCESS_CHECK_H_
#define NORMD_SERVER_RPC_EDGE_ACCESS_CHECK_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "server/rpc/edge/rpc_call.h"
#include "server/security/access_control.h"

namespace normd::rpc {

// The name of the connection's peer: that of its certificate, "uid:1000" for a user of the Unix socket, else
// "anonymous".
std::string PeerName(const RpcCall& call);

// A call that is not let in.
struct AccessDenial {
  Denial denial;
  absl::Status error;  // for the caller
};

// Gives the call its identity, if it has one, and returns why the call may not begin; nullopt if it may. Without an
// `access`, everybody may call everything. `method` is an index of access->MethodIndex.
std::optional<AccessDenial> CheckAccess(AccessControl* access, size_t method, RpcCall* call);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_EDGE_ACCESS_CHECK_H_
