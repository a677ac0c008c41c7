// Flags and files of normctl METHOD as a request. Needs no server.
#ifndef NORMD_CLIENT_NORMCTL_NORMALIZE_REQUEST_H_
#define NORMD_CLIENT_NORMCTL_NORMALIZE_REQUEST_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cli/args.h"
#include "client/cli/program.h"
#include "client/cli/tensor_file.h"
#include "normd/v1/normalizer.pb.h"

namespace normd::client {

// Results that can be asked for, and the flag that says where they go.
struct OutputFile {
  absl::string_view flag;
  v1::OutputKind kind;
};
inline constexpr OutputFile kOutputFiles[] = {{"output", v1::OUTPUT_KIND_Y},
                                              {"output-h", v1::OUTPUT_KIND_H},
                                              {"mean", v1::OUTPUT_KIND_MEAN},
                                              {"inv-std", v1::OUTPUT_KIND_INV_STD}};

struct NormalizeInput {
  v1::NormalizeRequest request;  // everything but the target
  bool raw_bf16 = false;         // x came as bf16 bits: results are written so, too
};

// The flags next to those of the spec and the server. `method` is a field's name; empty: a session's, whatever it is.
std::vector<FlagSpec> NormalizeFlags(absl::string_view method);

// Loads every file that `args` names. UsageError for flags that do not go together.
absl::StatusOr<NormalizeInput> BuildNormalizeInput(const ParsedArgs& args);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_NORMALIZE_REQUEST_H_
