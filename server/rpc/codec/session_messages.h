// Session <-> normd.v1.Session, and the small texts of the Sessions service: labels, filters, page tokens, masks.
// In the path: the codec of sessions_service.cc. What only spec and tensors together can say is left to the engine and
// the store. Pure functions.
#ifndef NORMD_SERVER_RPC_CODEC_SESSION_MESSAGES_H_
#define NORMD_SERVER_RPC_CODEC_SESSION_MESSAGES_H_

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "normd/v1/sessions.pb.h"
#include "server/session/session_store.h"

namespace normd::rpc {

using Labels = std::map<std::string, std::string>;

// Output-only fields are ignored, as API guides have it. Field paths of errors are relative to `message`.
absl::StatusOr<Session> SessionFromMessage(const v1::Session& message);

// BASIC leaves the tensors out.
void SessionToMessage(const Session& session, Durability durability, v1::SessionView view, v1::Session* message);

// INVALID_ARGUMENT for an unknown number; UNSPECIFIED is BASIC.
absl::StatusOr<v1::SessionView> DecodeView(int view);

// The patch that the mask asks for: parameters, parameters.weight, parameters.bias, labels, ttl; INVALID_ARGUMENT
// naming another path, or a mask that names nothing.
absl::StatusOr<SessionPatch> PatchFromMessage(const v1::UpdateSessionRequest& request);

// "a=1 AND b=2" -> {{"a", "1"}, {"b", "2"}}.
absl::StatusOr<Labels> DecodeFilter(const std::string& filter);

// A token says where a list goes on, and of which list: one of another filter is INVALID_ARGUMENT.
std::string EncodePageToken(const std::string& filter, const std::string& after_id);
absl::StatusOr<std::string> DecodePageToken(const std::string& filter, const std::string& token);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_SESSION_MESSAGES_H_
