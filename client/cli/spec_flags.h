// Flags that describe a NormSpec. Flag names are the fields of the method's message with dashes (--eps-mode,
// --normalized-shape), found by reflection: a field added to the contract needs one line of help here and nothing else.
// Pure functions.
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

// The methods as commands write them ("layer-norm"), in the order of NormSpec.
std::vector<std::string> MethodNames();

// The name of the NormSpec field for "layer-norm" or "layer_norm": "layer_norm". nullopt for other words.
std::optional<std::string> MethodField(absl::string_view name);

// UsageError for a word that names no method, with the method that was meant.
absl::Status UnknownMethodError(absl::string_view written);

// The flags that `method` (the name of a NormSpec field) understands; for an empty method, the flags of all methods.
std::vector<FlagSpec> SpecFlags(absl::string_view method);

// The spec of `method` with the flags that were given. Some defaults need the input's `shape`: LayerNorm normalises the
// last axis, and an input of rank 2 is channels-last (both layouts are the same there). UsageError for malformed values
// and for flags that the method does not have; the server checks the ranges of values.
absl::StatusOr<v1::NormSpec> BuildSpec(absl::string_view method, const ParsedArgs& args,
                                       const std::optional<std::vector<int64_t>>& shape);

// The number of the enum value of `descriptor` whose text starts with `text`: "inside" finds EPS_MODE_INSIDE_SQRT.
// UsageError, naming `flag`, if there is none.
absl::StatusOr<int> ParseEnum(const google::protobuf::EnumDescriptor& descriptor, absl::string_view flag,
                              absl::string_view text);

// "inside_sqrt": the name of an enum value without the prefix of its type.
std::string EnumText(const google::protobuf::EnumDescriptor& descriptor, int number);

// The name of the NormSpec field that is set ("layer_norm"), or "" for an empty spec.
std::string MethodOf(const v1::NormSpec& spec);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_SPEC_FLAGS_H_
