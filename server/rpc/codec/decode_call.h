// Decodes NormalizeRequest and ComputeMomentsRequest into Call.
// In the path: between the parsed message and Engine::Submit. Errors are INVALID_ARGUMENT, with field paths relative to
// the message. The engine checks what only the plan can check: shapes against the spec, and lengths of parameters.
// Threads: pure functions.
#ifndef NORMD_SERVER_RPC_CODEC_DECODE_CALL_H_
#define NORMD_SERVER_RPC_CODEC_DECODE_CALL_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "normd/v1/normalizer.pb.h"
#include "server/engine/call.h"
#include "server/rpc/codec/tensor_source.h"

namespace normd::rpc {

// A message and the source of its tensors. Both must outlive everything decoded from them.
template <typename Message>
struct WithTensors {
  const Message* message = nullptr;
  TensorSource* tensors = nullptr;
};

// Decodes a call of a caller of `tenant`. `defaults`, whose message may be null, fills the fields that `request` does
// not set. Parameters belong to the target, so a request that names its own target does not use the defaults'
// parameters. The call borrows the bytes of both; the code that submits the call sets an owner of both.
absl::StatusOr<Call> DecodeCall(WithTensors<v1::NormalizeRequest> request, WithTensors<v1::NormalizeRequest> defaults,
                                std::string_view tenant);

// Sets the tensors of `call` that came in chunks; `call` was decoded from `request` while the chunks were awaited.
absl::Status TakeChunkedTensors(WithTensors<v1::NormalizeRequest> request, Call* call);

// OK if `request` can serve as a stream's defaults: it must be a valid call, except that x must be absent, and so must
// a step, which identifies a single call; the target may be absent.
absl::Status CheckDefaults(WithTensors<v1::NormalizeRequest> request);

absl::StatusOr<Call> DecodeComputeMoments(WithTensors<v1::ComputeMomentsRequest> request, std::string_view tenant);

// The name of the spec's method, such as "layer_norm"; "" if the spec has none.
std::string_view MethodName(const v1::NormSpec& spec);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_DECODE_CALL_H_
