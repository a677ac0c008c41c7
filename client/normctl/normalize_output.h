// What normctl METHOD leaves: results in files, on standard output or shown on the terminal, and a summary of the call
// as text or JSON. In the path: after the reply.
#ifndef NORMD_CLIENT_NORMCTL_NORMALIZE_OUTPUT_H_
#define NORMD_CLIENT_NORMCTL_NORMALIZE_OUTPUT_H_

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/program.h"
#include "client/normctl/normalize_request.h"

namespace normd::client {

// A result that was written.
struct SavedOutput {
  std::string name;  // "y"
  std::string path;  // "" if it was shown
  std::string dtype;
  std::vector<int64_t> shape;
  std::string note;  // what is worth knowing of how it was written; or ""
};

// Writes the outputs of `response` to the places of `input`, or shows y if there are none. Takes over their bytes.
absl::StatusOr<std::vector<SavedOutput>> SaveOutputs(const NormalizeInput& input, v1::NormalizeResponse& response,
                                                     const Terminal& terminal);

// How a call went, besides what the response says.
struct NormalizeReport {
  std::vector<SavedOutput> saved;
  std::vector<std::string> header;  // the line of a .csv that was taken as its header
  std::string server;
  bool shared_memory = false;  // tensors were shared instead of sent
  absl::Duration round_trip;
};

void PrintSummary(const v1::NormalizeResponse& response, const NormalizeReport& call, std::ostream& out);
std::string SummaryJson(const v1::NormalizeResponse& response, const NormalizeReport& call);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_NORMALIZE_OUTPUT_H_
