// normctl demo: sends real inputs through a running server and shows expected results beside received ones. There are
// four parts, one source file each. Every comparison is counted, and a failed one makes the exit code 1.
#ifndef NORMD_CLIENT_NORMCTL_DEMO_H_
#define NORMD_CLIENT_NORMCTL_DEMO_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cli/program.h"
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

// The parts. The returned error is that of a failed call; a failed comparison is counted in `demo` instead.
absl::Status RunExamples(Demo& demo);    // (a) published worked examples
absl::Status RunIris(Demo& demo);        // (b) running statistics of a BatchNorm session
absl::Status RunSideBySide(Demo& demo);  // (c) every method on one tensor
absl::Status RunResidual(Demo& demo);    // (d) pre-norm and post-norm residual stacks

// Deletes a session at the end of a scope. A session that is already gone is not an error.
class ScopedSession {
 public:
  // Creates a session named "demo-`what`-<random>", which is unique on any server.
  static absl::StatusOr<ScopedSession> Create(Client& client, absl::string_view what, const v1::Session& session);
  ScopedSession(ScopedSession&& other) noexcept;
  ScopedSession(const ScopedSession&) = delete;
  ScopedSession& operator=(const ScopedSession&) = delete;
  ~ScopedSession();

  const std::string& name() const { return name_; }

 private:
  ScopedSession(Client& client, std::string name) : client_(&client), name_(std::move(name)) {}
  Client* client_;
  std::string name_;  // empty if moved from
};

// The number of floats between two floats: 0 for equal ones (and for 0 and -0, NaN and NaN), a huge number for NaN and
// a number.
int64_t UlpDistance(float a, float b);

// Takes the output of `kind` from a reply, as a tensor.
absl::StatusOr<Tensor> TakeOutput(v1::NormalizeResponse& response, v1::OutputKind kind);

// The root of the mean square.
double RootMeanSquare(const std::vector<double>& values);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_DEMO_H_
