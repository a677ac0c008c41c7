// A session as a state_dict of PyTorch in a safetensors file: weight, bias, running_mean, running_var,
// num_batches_tracked (PowerNorm: running_phi), each after a prefix such as "layer1.bn1.", and the spec as metadata.
// State and parameters are kept bit for bit; uid, version, step ids and ttl are not part of a state_dict.
// In the path: between a session's message and a file's bytes. Pure functions; needs no server.
#ifndef NORMD_CLIENT_NORMCTL_STATE_DICT_H_
#define NORMD_CLIENT_NORMCTL_STATE_DICT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cli/safetensors.h"
#include "normd/v1/sessions.pb.h"

namespace normd::client {

// The file's bytes. Parameters keep their dtype; running statistics are F64, the state's own bits, or F32 where
// `f32_statistics`, which rounds. REQUIRES: `session` is of SESSION_VIEW_FULL. INVALID_ARGUMENT for a prefix that is no
// UTF-8 and for more batches than I64 holds.
absl::StatusOr<std::string> ToStateDict(const v1::Session& session, absl::string_view prefix, bool f32_statistics);

// A session for CreateSession: parameters, state and, where the file's metadata has them, spec, num_channels, dtype and
// labels. Names without the prefix, and other names with it, are left alone. INVALID_ARGUMENT, naming the tensor, where
// nothing is found, one of running_mean and running_var is alone, lengths differ, or a dtype or metadata is of another
// kind.
absl::StatusOr<v1::Session> FromStateDict(const Safetensors& file, absl::string_view prefix);

// Sets num_channels from the tensors where the method has channels and nothing set it. REQUIRES: the spec is set.
// INVALID_ARGUMENT where they disagree.
absl::Status ResolveChannels(v1::Session& session);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_STATE_DICT_H_
