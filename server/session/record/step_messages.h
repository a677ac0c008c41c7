// The step ids of a session <-> the messages of its record.
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

// The place of a client's row; {}: it stands in the record.
struct RowPlace {
  int64_t slot = 0;
  uint32_t checksum = 0;
};

// Adds clients and floor.
void StepsToMessage(const StepLog& steps, store::v1::SessionRecord* record);

// INVALID_ARGUMENT for what no server has written. `places`: of the record's clients, in their order; empty: none has
// one.
absl::StatusOr<StepLog> StepsFromMessage(const store::v1::SessionRecord& record, absl::Span<const RowPlace> places);

// INVALID_ARGUMENT naming "clients".
absl::Status BadStepsError(std::string_view what);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_RECORD_STEP_MESSAGES_H_
