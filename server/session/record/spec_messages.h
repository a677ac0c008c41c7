// Translates NormSpec to and from normd.v1.NormSpec, for requests, sessions and stored records alike.
// In the path: the codec and record.cc call it. MakePlan and ValidateSpec check values; this file checks what only a
// message can get wrong: unknown enum numbers, a missing method, fields that exclude each other.
// Pure functions, safe from any thread.
#ifndef NORMD_SERVER_SESSION_RECORD_SPEC_MESSAGES_H_
#define NORMD_SERVER_SESSION_RECORD_SPEC_MESSAGES_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/plan.h"
#include "normd/v1/norm.pb.h"

namespace normd {

// INVALID_ARGUMENT on an unknown enum value, no method, LayerNorm with both or neither of normalized_shape and axes,
// RMSNorm with both, pRMSNorm with both or neither of p and k, LpNorm with both order and p or both axis and axes,
// cumulative with momentum. `field` is the path of the message itself: errors name "<field>.layer_norm.eps_mode".
absl::StatusOr<NormSpec> SpecFromMessage(const v1::NormSpec& message, std::string_view field);

// The inverse. Enums that have a documented default are written out; eps, eps_mode and momentum keep their absence.
void SpecToMessage(const NormSpec& spec, v1::NormSpec* message);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_RECORD_SPEC_MESSAGES_H_
