// Translates the step ids of a session to and from the messages of its record.
// In the path: record.cc. Pure functions, safe from any thread.
#ifndef NORMD_SERVER_SESSION_RECORD_STEP_MESSAGES_H_
#define NORMD_SERVER_SESSION_RECORD_STEP_MESSAGES_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "normd/store/v1/record.pb.h"
#include "server/session/step_log.h"

namespace normd {

// The place of a client's row; {}: the client stands in the record itself.
struct RowPlace {
  int64_t slot = 0;
  uint32_t checksum = 0;
};

// Adds the clients and the floor to `record`.
void StepsToMessage(const StepLog& steps, store::v1::SessionRecord* record);

// The inverse. INVALID_ARGUMENT for step ids that no server has written. `places` are those of the record's clients, in
// their order; empty: no client has a row.
absl::StatusOr<StepLog> StepsFromMessage(const store::v1::SessionRecord& record, absl::Span<const RowPlace> places);

// INVALID_ARGUMENT naming "clients"; `what` is wrong with them.
absl::Status BadStepsError(std::string_view what);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_RECORD_STEP_MESSAGES_H_
