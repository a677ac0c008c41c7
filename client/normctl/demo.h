// normctl demo: sends real inputs through a running server and shows expected results beside received ones: the
// examples of data/worked-examples.json, and a residual stack. Every comparison is counted, and a failed one makes the
// exit code 1.
#ifndef NORMD_CLIENT_NORMCTL_DEMO_H_
#define NORMD_CLIENT_NORMCTL_DEMO_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cpp/client.h"

namespace normd::client {

// The state that the parts share. `text` and `json` grow as the parts run; normctl prints one of the two.
struct Demo {
  Client& client;
  int width;
  std::string text;
  nlohmann::json json = nlohmann::json::object();
  int64_t comparisons = 0;
  std::vector<std::string> failures;

  // Counts one comparison and returns `holds`. `what` names a comparison that failed.
  bool Check(bool holds, absl::string_view what);
};

// Pre-norm and post-norm residual stacks. The returned error is that of a failed call; a failed comparison is counted
// in `demo` instead.
absl::Status RunResidual(Demo& demo);

// Takes the output of `kind` from a reply, as a tensor.
absl::StatusOr<Tensor> TakeOutput(v1::NormalizeResponse& response, v1::OutputKind kind);

// data/worked-examples.json, compiled in (see embed.cmake), so that an installed normctl needs no files.
absl::string_view WorkedExamplesJson();

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_DEMO_H_
