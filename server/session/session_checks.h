// The rules for names and limits of sessions, shared by every store and by rpc: one place says what an id looks like.
// Pure functions, safe from any thread.
#ifndef NORMD_SERVER_SESSION_SESSION_CHECKS_H_
#define NORMD_SERVER_SESSION_SESSION_CHECKS_H_

#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/session/session_store.h"

namespace normd {

// INVALID_ARGUMENT naming "session_id" unless id is [a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])? and no method's name.
absl::Status ValidateSessionId(std::string_view id);

// INVALID_ARGUMENT naming "step.client_id" unless it has 1 to 128 bytes and no characters that hide others,
// "step.sequence" unless it is at least 1.
absl::Status ValidateStepId(const StepId& step);
// The same without a look at the characters: for what older servers have taken.
absl::Status CheckStepIdSize(const StepId& step);

// INVALID_ARGUMENT naming "state.mean", "state.var" or "state.phi" when a given state has vectors that `spec` does not
// use, a wrong length, a NaN, or a negative variance. NaN is let through where the spec accepts non-finite steps: there
// it is honest state.
absl::Status ValidateState(const NormSpec& spec, int64_t channels, const RunningState& state);

// What a label's key or value may be: at most 63 characters of A-Z a-z 0-9 . _ - /, so that filters need not quote.
bool IsLabelText(std::string_view text);
// INVALID_ARGUMENT naming "labels" or "labels.KEY": too many, an empty key, or text that IsLabelText refuses.
absl::Status ValidateLabels(const std::map<std::string, std::string>& labels);

// RESOURCE_EXHAUSTED naming "parameters" or "num_channels" when a session would hold more than limits allow.
absl::Status CheckSessionSize(const OwnedParameters& parameters, int64_t channels, const SessionLimits& limits);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_SESSION_CHECKS_H_
