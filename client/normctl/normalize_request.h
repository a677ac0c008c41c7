// Makes the request of normctl METHOD from flags and files. Needs no server. Pure but for reading the files.
#ifndef NORMD_CLIENT_NORMCTL_NORMALIZE_REQUEST_H_
#define NORMD_CLIENT_NORMCTL_NORMALIZE_REQUEST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cli/args.h"
#include "client/cli/program.h"
#include "client/cli/tensor_file.h"
#include "normd/v1/normalizer.pb.h"

namespace normd::client {

// A result that can be asked for, and the flag that names its file.
struct OutputFile {
  absl::string_view flag;
  v1::OutputKind kind;
};
inline constexpr OutputFile kOutputFiles[] = {{"output", v1::OUTPUT_KIND_Y},
                                              {"output-h", v1::OUTPUT_KIND_H},
                                              {"mean", v1::OUTPUT_KIND_MEAN},
                                              {"inv-std", v1::OUTPUT_KIND_INV_STD}};

// Where one result goes. The path "-" is standard output.
struct OutputPlace {
  v1::OutputKind kind = v1::OUTPUT_KIND_UNSPECIFIED;
  std::string path;
  FileFormat format = FileFormat::kNpy;
};

// The input of one call.
struct NormalizeInput {
  v1::NormalizeRequest request;            // everything but the target
  TensorFormat format;                     // how x was written
  std::vector<std::string> warnings = {};  // what a person should know of the files
  // In the order of request.outputs(). Empty if no place was named: y is to be shown, unless the request only
  // validates.
  std::vector<OutputPlace> places;
};

// The flags besides those of the spec and the server. `method` is the name of a NormSpec field; empty for a session,
// whose method is not known here.
std::vector<FlagSpec> NormalizeFlags(absl::string_view method);

// Loads every file that `args` names. UsageError for flags that exclude each other or lack one another, and for two
// tensors from standard input or to standard output.
absl::StatusOr<NormalizeInput> BuildNormalizeInput(const ParsedArgs& args);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_NORMALIZE_REQUEST_H_
