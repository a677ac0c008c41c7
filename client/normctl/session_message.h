// What the commands about sessions share: names, flags that become fields of messages, and sessions and steps as text
// and JSON. In the path: between client/cli (flags, files) and the commands. Pure functions of their arguments.
#ifndef NORMD_CLIENT_NORMCTL_SESSION_MESSAGE_H_
#define NORMD_CLIENT_NORMCTL_SESSION_MESSAGE_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cli/args.h"
#include "client/cli/program.h"
#include "normd/v1/sessions.pb.h"

namespace normd::client {

// "sessions/bn" for "bn" and for "sessions/bn".
std::string SessionName(absl::string_view id);

// Prints the session, or returns its error.
absl::Status ShowSession(const absl::StatusOr<v1::Session>& session, const ParsedArgs& args, const Terminal& terminal);

// MessageJson with the attributes that are in effect, and "defaulted": the names of those that were not given.
nlohmann::json SessionJson(v1::Session session);

// The labels: "a=1 b=2".
std::string LabelsText(const v1::Session& session);

// The result of a training step.
std::string StateText(const v1::StateResult& state);
nlohmann::json StateJson(const v1::StateResult& state);

// Converts a duration. Infinite durations become the longest that the message holds.
void SetDuration(absl::Duration from, google::protobuf::Duration* to);

// Set fields from --label, --ttl, --weight and --bias. UsageError for malformed values; errors of files as they are.
absl::Status AddLabels(const ParsedArgs& args, v1::Session& session);
absl::Status AddTtl(const ParsedArgs& args, v1::Session& session);
absl::Status AddParameters(const ParsedArgs& args, v1::Session& session);

// The value of a flag that counts from 0. UsageError for negative values.
absl::StatusOr<std::optional<uint64_t>> CountFlag(const ParsedArgs& args, absl::string_view flag);

inline constexpr FlagSpec kExpectedVersionFlag = {"expected-version", '\0', "V",
                                                  "refuse unless the session is at this version"};
// Sets `expected_version` of any request that has the field.
template <typename Request>
absl::Status AddExpectedVersion(const ParsedArgs& args, Request& request) {
  const absl::StatusOr<std::optional<uint64_t>> version = CountFlag(args, "expected-version");
  if (version.ok() && version->has_value()) request.set_expected_version(**version);
  return version.status();
}

// --step-client and --step-sequence.
std::vector<FlagSpec> StepFlags();
// Sets `step` from these flags. UsageError if only one of them is given.
template <typename Request>
absl::Status AddStep(const ParsedArgs& args, Request& request) {
  const absl::StatusOr<std::optional<uint64_t>> sequence = CountFlag(args, "step-sequence");
  if (!sequence.ok()) return sequence.status();
  if (args.Has("step-client") != sequence->has_value()) {
    return UsageError("--step-client and --step-sequence go together");
  }
  if (!sequence->has_value()) return absl::OkStatus();
  request.mutable_step()->set_client_id(*args.Get("step-client"));
  request.mutable_step()->set_sequence(**sequence);
  return absl::OkStatus();
}

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_SESSION_MESSAGE_H_
