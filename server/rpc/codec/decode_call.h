// NormalizeRequest, ComputeMomentsRequest -> Call.
// In the path: between the parsed message and Engine::Submit. Field paths of errors are relative to the message; what
// only the plan can judge (shapes against the spec, lengths of parameters) is left to the engine. Pure functions.
#ifndef NORMD_SERVER_RPC_CODEC_DECODE_CALL_H_
#define NORMD_SERVER_RPC_CODEC_DECODE_CALL_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "normd/v1/normalizer.pb.h"
#include "server/engine/call.h"
#include "server/rpc/codec/tensor_source.h"

namespace normd::rpc {

// A message and where its tensors are. Both outlive what is decoded from them.
template <typename Message>
struct WithTensors {
  const Message* message = nullptr;
  TensorSource* tensors = nullptr;
};

// The call borrows the bytes of `request` and of `defaults`; whoever submits it gives it an owner of both. `defaults`
// (its message may be null) fills the fields that `request` does not set; parameters belong to the spec: a request that
// names its own target does without those of the defaults.
absl::StatusOr<Call> DecodeCall(WithTensors<v1::NormalizeRequest> request, WithTensors<v1::NormalizeRequest> defaults);

// Gives `call`, decoded from `request` while its chunks were awaited, the bytes that have come.
absl::Status TakeChunkedTensors(WithTensors<v1::NormalizeRequest> request, Call* call);

// Whether `request` can serve as a stream's defaults: as good as a call without x, and without a step, which identifies
// one call.
absl::Status CheckDefaults(WithTensors<v1::NormalizeRequest> request);

absl::StatusOr<Call> DecodeComputeMoments(WithTensors<v1::ComputeMomentsRequest> request);

// "sessions/a" -> "a". INVALID_ARGUMENT naming `field` for another form.
absl::StatusOr<std::string> DecodeSessionName(const std::string& name, std::string_view field);

// "layer_norm" of a spec that has a method, else "".
std::string_view MethodName(const v1::NormSpec& spec);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_DECODE_CALL_H_
