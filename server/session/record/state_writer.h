// The state half of a record as protobuf writes it, without a message in between: a step writes one, and building
// messages of its outcomes cost more than the arithmetic of the step.
// In the path: SerializeState. Pure functions, safe from any thread.
#ifndef NORMD_SERVER_SESSION_RECORD_STATE_WRITER_H_
#define NORMD_SERVER_SESSION_RECORD_STATE_WRITER_H_

#include <string>

#include "server/session/stored_session.h"

namespace normd {

// Both append to `bytes` fields of a SessionRecord: version, num_batches and update_time; and mean, var, phi,
// phi_before, the floor, and the clients or what tells of their rows.
void WriteStateSummary(const Session& session, std::string* bytes);
void WriteStateBody(const StoredSession& stored, std::string* bytes);

// Append the fields of a ClientRecord.
void WriteClient(const std::string& id, const ClientSteps& steps, std::string* bytes);
void WriteRetired(const RetiredClient& retired, std::string* bytes);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_RECORD_STATE_WRITER_H_
