// What the audit log says of one call. In the path: a Stream whose route is audited, or whose call was denied, reports
// one record when the call ends. A plain value.
#ifndef NORMD_SERVER_RPC_EDGE_AUDIT_RECORD_H_
#define NORMD_SERVER_RPC_EDGE_AUDIT_RECORD_H_

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/security/identity.h"

namespace normd {

struct AuditRecord {
  std::string method;       // "/normd.v1.Sessions/CreateSession", as the caller wrote it
  IdentityPtr identity;     // null if the caller is not known
  std::string peer;         // "ipv4:127.0.0.1:40112"
  std::string session;      // "sessions/bn"; empty if the call names none
  std::string source;       // of a fork: the session that was forked
  std::string_view denied;  // one of kDenialNames; empty if the call was let in
  std::string request_id;   // as CallTrace::RequestId; empty where there was no call
  absl::StatusCode code = absl::StatusCode::kOk;
};

using AuditSink = std::function<void(const AuditRecord& record)>;

}  // namespace normd

#endif  // NORMD_SERVER_RPC_EDGE_AUDIT_RECORD_H_
