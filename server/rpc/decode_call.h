// NormalizeRequest, ComputeMomentsRequest -> Call.
// In the path: between the parsed message and Engine::Submit. Field paths of errors are relative to the message; what
// only the plan can judge (shapes against the spec, lengths of parameters) is left to the engine. Pure functions.
#ifndef NORMD_SERVER_RPC_DECODE_CALL_H_
#define NORMD_SERVER_RPC_DECODE_CALL_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "normd/v1/normalizer.pb.h"
#include "server/engine/call.h"

namespace normd::rpc {

// The call borrows the bytes of `request` and of `defaults`; `owner` keeps both alive. `defaults` (may be null) fills
// the fields that `request` does not set; parameters belong to the spec: a request that names its own target does
// without those of the defaults.
absl::StatusOr<Call> DecodeCall(const v1::NormalizeRequest& request, const v1::NormalizeRequest* defaults,
                                std::shared_ptr<const void> owner);

// Whether `request` can serve as a stream's defaults: as good as a call without x, and without a step, which identifies
// one call.
absl::Status CheckDefaults(const v1::NormalizeRequest& request);

absl::StatusOr<Call> DecodeComputeMoments(const v1::ComputeMomentsRequest& request, std::shared_ptr<const void> owner);

// "sessions/a" -> "a". INVALID_ARGUMENT naming `field` for another form.
absl::StatusOr<std::string> DecodeSessionName(const std::string& name, std::string_view field);

// "layer_norm" of a spec that has a method, else "".
std::string_view MethodName(const v1::NormSpec& spec);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_DECODE_CALL_H_
