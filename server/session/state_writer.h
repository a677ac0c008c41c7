// The state half of a record as protobuf writes it, without a message in between: a step writes one, and building
// messages of its outcomes cost more than the arithmetic of the step.
// In the path: SerializeState. Pure functions, safe from any thread.
#ifndef NORMD_SERVER_SESSION_STATE_WRITER_H_
#define NORMD_SERVER_SESSION_STATE_WRITER_H_

#include <string>

#include "server/session/stored_session.h"

namespace normd {

// Replaces `bytes`, whose memory is used again, by those of a SessionRecord that has version, mean, var, phi,
// phi_before, num_batches, clients and update_time. Leaves room for `spare_bytes` more at the end.
void WriteState(const StoredSession& stored, size_t spare_bytes, std::string* bytes);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_STATE_WRITER_H_
