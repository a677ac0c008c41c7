// Converts Session to and from normd.v1.Session, and decodes the small texts of the Sessions service: labels, filters,
// masks. Names and page tokens are in session_name.h.
// In the path: the codec of sessions_service.cc. The engine and the store make the checks that need spec and tensors
// together.
// Threads: pure functions.
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

// Decodes a session. Ignores output-only fields, as is usual for APIs. Field paths of errors are relative to `message`.
absl::StatusOr<Session> SessionFromMessage(const v1::Session& message);

// Encodes a running state.
void StateToMessage(const RunningState& state, v1::RunningState* message);

// Encodes a session. The view BASIC leaves out the tensors, the names of channels and the digest.
void SessionToMessage(const Session& session, Durability durability, v1::SessionView view, v1::Session* message);

// Decodes a view; UNSPECIFIED means BASIC. Returns INVALID_ARGUMENT for an unknown number.
absl::StatusOr<v1::SessionView> DecodeView(int view);

// Decodes the patch of the paths in the mask: parameters, parameters.weight, parameters.bias, labels, ttl, frozen.
// Returns INVALID_ARGUMENT naming any other path, or for an empty mask.
absl::StatusOr<SessionPatch> PatchFromMessage(const v1::UpdateSessionRequest& request);

// "a=1 AND b=2" -> {{"a", "1"}, {"b", "2"}}.
absl::StatusOr<Labels> DecodeFilter(const std::string& filter);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_SESSION_MESSAGES_H_
