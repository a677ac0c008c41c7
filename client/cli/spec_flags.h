// Flags that make a NormSpec. Flag names are the fields of the method's message with dashes (--eps-mode,
// --normalized-shape), found by reflection: a field added to the contract needs one line of help here and nothing else.
#ifndef NORMD_CLIENT_CLI_SPEC_FLAGS_H_
#define NORMD_CLIENT_CLI_SPEC_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cli/args.h"
#include "normd/v1/norm.pb.h"

namespace normd::client {

// The methods as commands write them, "layer-norm", in the order of NormSpec.
std::vector<std::string> MethodNames();

// "layer-norm" or "layer_norm" as the field's name, "layer_norm"; nothing for other words.
std::optional<std::string> MethodField(absl::string_view name);

// The flags that `method` (a field's name) understands. Empty method: those of any.
std::vector<FlagSpec> SpecFlags(absl::string_view method);

// The spec of `method` with the flags given. Defaults that need the input's shape, where it is known: LayerNorm takes
// the last axis, and rank 2 is channels-last (there the two layouts are the same). UsageError for values out of form
// and flags the method does not have; what a value may be is the server's to say.
absl::StatusOr<v1::NormSpec> BuildSpec(absl::string_view method, const ParsedArgs& args,
                                       const std::optional<std::vector<int64_t>>& shape);

// The number of the enum value of `descriptor` that starts with `text` ("inside" finds EPS_MODE_INSIDE_SQRT).
absl::StatusOr<int> ParseEnum(const google::protobuf::EnumDescriptor& descriptor, absl::string_view flag,
                              absl::string_view text);

// "inside_sqrt": an enum's value without its type's name.
std::string EnumText(const google::protobuf::EnumDescriptor& descriptor, int number);

// The field of NormSpec that is set: "layer_norm", or "" for an empty spec.
std::string MethodOf(const v1::NormSpec& spec);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_SPEC_FLAGS_H_
