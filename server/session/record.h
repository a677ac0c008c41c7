// StoredSession <-> a serialised normd.store.v1.SessionRecord: what export sends, import takes and stores keep.
// Doubles travel bit for bit. A record is checked like any outside bytes: a damaged one is DATA_LOSS, one that no
// server would have written is INVALID_ARGUMENT; nothing is allocated beyond what its bytes hold. Pure functions, safe
// from any thread.
#ifndef NORMD_SERVER_SESSION_RECORD_H_
#define NORMD_SERVER_SESSION_RECORD_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/session/stored_session.h"

namespace normd {

inline constexpr uint32_t kRecordSchema = 1;

// Equal sessions give equal bytes.
std::string SerializeRecord(const StoredSession& stored);

// The record as stores keep it, in two halves, so that a step writes only what it changed: what a step leaves alone
// (spec, parameters, labels, ttl, ...), and what it changes (version, statistics, step ids, update time).
std::string SerializeHead(const Session& session);
void SerializeState(const StoredSession& stored, std::string* bytes);  // uses the memory of `bytes` again
std::string SerializeState(const StoredSession& stored);

// The inverse, epoch and times as recorded. DATA_LOSS: not a record, or a wrong checksum. FAILED_PRECONDITION: a schema
// this server does not know. INVALID_ARGUMENT, with field paths relative to the record: values that cannot be.
absl::StatusOr<StoredSession> ParseRecord(std::string_view bytes);
absl::StatusOr<StoredSession> ParseHalves(std::string_view head, std::string_view state);

// A serialised record or half of one, with the checksum's field appended. REQUIRES: crc32c is not set in it.
std::string SealRecord(std::string bytes);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_RECORD_H_
