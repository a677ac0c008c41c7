// Writes the state part of a record in protobuf's encoding, without building a message: every step writes a state, and
// building messages of its outcomes cost more than the arithmetic of the step.
// In the path: SerializeState and TakeClientRows. Pure functions, safe from any thread.
#ifndef NORMD_SERVER_SESSION_RECORD_STATE_WRITER_H_
#define NORMD_SERVER_SESSION_RECORD_STATE_WRITER_H_

#include <string>
#include <vector>

#include "server/session/stored_session.h"

namespace normd {

// Whether a low vector of a state (server/session/session_store.h) is written: those of counts are mostly all 0.
bool IsStored(const std::vector<double>& low);

// Append fields of a SessionRecord to `bytes`. The summary: version, num_batches and update_time. The body: the
// vectors of the state, phi_before, the floor, and the clients or, if they are in rows, the number of rows and the sum
// of their checksums.
void WriteStateSummary(const Session& session, std::string* bytes);
void WriteStateBody(const StoredSession& stored, std::string* bytes);

// Append the fields of a ClientRecord to `bytes`.
void WriteClient(const std::string& id, const ClientSteps& steps, std::string* bytes);
void WriteRetired(const RetiredClient& retired, std::string* bytes);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_RECORD_STATE_WRITER_H_
