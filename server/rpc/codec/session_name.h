// The names of sessions at the edge: the only code that makes a store's key (server/session/session_key.h) of a
// caller's tenant and the name in its message, and a name of a key. A tenant comes from the identity of a call, never
// from a message, and callers never see a key.
// In the path: every message that has a session's name, id or page token, in either direction.
// Threads: pure functions.
#ifndef NORMD_SERVER_RPC_CODEC_SESSION_NAME_H_
#define NORMD_SERVER_RPC_CODEC_SESSION_NAME_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace normd::rpc {

// The key of the session that a caller of `tenant` names: "sessions/a" -> "/vision/a". INVALID_ARGUMENT naming `field`
// for another form; the id itself may be one that no session can have.
absl::StatusOr<std::string> DecodeSessionName(const std::string& name, std::string_view field, std::string_view tenant);

// The key of a session to create, from its id; an empty id lets the store choose one, or take that of an imported
// record. INVALID_ARGUMENT naming "session_id" for an id that no session may have.
absl::StatusOr<std::string> DecodeNewSessionId(const std::string& id, std::string_view tenant);

// "/vision/a" -> "sessions/a".
std::string EncodeSessionName(std::string_view key);

// A page token says where a list continues, and to which filter and tenant it belongs. A token of another filter or
// another tenant is INVALID_ARGUMENT. An empty token is an empty key.
std::string EncodePageToken(const std::string& filter, std::string_view after_key);
absl::StatusOr<std::string> DecodePageToken(const std::string& filter, const std::string& token,
                                            std::string_view tenant);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_SESSION_NAME_H_
