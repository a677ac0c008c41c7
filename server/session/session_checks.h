// The rules for names and sizes of sessions, shared by the stores, the engine and the codec: what a session id, a step
// id, a label and a given state look like. Of the rules of a step this file holds those of its id; stored_session.h
// lists the other rules.
// Pure functions, safe from any thread.
#ifndef NORMD_SERVER_SESSION_SESSION_CHECKS_H_
#define NORMD_SERVER_SESSION_SESSION_CHECKS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/session/session_store.h"

namespace normd {

// INVALID_ARGUMENT naming "session_id" unless `id` matches [a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])? and is no method's
// name.
absl::Status ValidateSessionId(std::string_view id);

// INVALID_ARGUMENT naming "step.client_id" unless the client id has 1 to 128 bytes and no characters that break lines
// or turn the direction of text, and naming "step.sequence" unless the sequence is at least 1.
absl::Status ValidateStepId(const StepId& step);
// The same without the check of characters, for ids that older servers have accepted.
absl::Status CheckStepIdSize(const StepId& step);

// INVALID_ARGUMENT naming `field` unless a given counter is one that a server could have reached by counting: at most
// INT64_MAX.
absl::Status CheckCounter(uint64_t value, std::string_view field);

// INVALID_ARGUMENT naming a vector of `state` ("state.mean") if a given state has vectors that `spec` does not use, a
// wrong length, a NaN, or a negative variance, phi, count or m2. NaN is allowed if the spec accepts non-finite steps,
// because NaN is honest state then, and for extremes, which it says are not known.
absl::Status ValidateState(const NormSpec& spec, int64_t channels, const RunningState& state);

// INVALID_ARGUMENT naming "channel_names" unless there are none, or `channels` distinct names of 1 to 255 bytes.
absl::Status ValidateChannelNames(const std::vector<std::string>& names, int64_t channels);
// FAILED_PRECONDITION if `session` is frozen.
absl::Status CheckNotFrozen(const Session& session);

// Whether `text` may be a label's key or value: at most 63 characters of A-Z a-z 0-9 . _ - /, so that filters need not
// quote.
bool IsLabelText(std::string_view text);
// INVALID_ARGUMENT naming "labels" or "labels.KEY" if there are too many, a key is empty, or IsLabelText refuses a
// text.
absl::Status ValidateLabels(const std::map<std::string, std::string>& labels);

// RESOURCE_EXHAUSTED naming "parameters", "channel_names" or "num_channels" if `session`, with these parameters, would
// take more than `limits` allow.
absl::Status CheckSessionSize(const Session& session, const OwnedParameters& parameters, const SessionLimits& limits);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_SESSION_CHECKS_H_
