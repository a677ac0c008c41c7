// A session as a PyTorch state_dict in a safetensors file: weight, bias, running_mean, running_var, num_batches_tracked
// (PowerNorm: running_phi), each name after a prefix such as "layer1.bn1.", and the spec as metadata. State and
// parameters are kept bit for bit; uid, version, step ids and ttl are not part of a state_dict.
// In the path: between a session's message and a file's bytes. Needs no server. Pure functions.
#ifndef NORMD_CLIENT_NORMCTL_STATE_DICT_H_
#define NORMD_CLIENT_NORMCTL_STATE_DICT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cli/safetensors.h"
#include "normd/v1/sessions.pb.h"

namespace normd::client {

// The bytes of the file. Parameters keep their dtype. Running statistics are F64 and bit-equal to the state, or are
// rounded to F32 if `f32_statistics`. REQUIRES: `session` is of SESSION_VIEW_FULL. INVALID_ARGUMENT for a prefix that
// is not UTF-8, and for more batches than an I64 holds.
absl::StatusOr<std::string> ToStateDict(const v1::Session& session, absl::string_view prefix, bool f32_statistics);

// A session for CreateSession: parameters and state, and spec, num_channels, dtype and labels if the file's metadata
// has them. The tensors may have PyTorch's names or those of Keras (gamma, beta, moving_mean, moving_variance), Flax
// (scale, bias, mean, var) and others, behind any of the prefixes. Names without a prefix are ignored, and so are
// unknown names with one. INVALID_ARGUMENT, naming the tensor, if nothing is found, if two tensors are the same by two
// names, if only one of running_mean and running_var is there, if lengths differ, or if a dtype or the metadata is of
// another kind.
absl::StatusOr<v1::Session> FromStateDict(const Safetensors& file, absl::Span<const std::string> prefixes);

// Sets num_channels from the tensors if the method has channels and num_channels is not set. REQUIRES: the spec is set.
// INVALID_ARGUMENT if spec and tensors disagree.
absl::Status ResolveChannels(v1::Session& session);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_STATE_DICT_H_
