// StoredSession <-> a serialised normd.store.v1.SessionRecord: what export sends, import takes and stores keep.
// Doubles travel bit for bit. A record is checked like any outside bytes: a damaged one is DATA_LOSS, one that no
// server would have written is INVALID_ARGUMENT; nothing is allocated beyond what its bytes hold. Pure functions, safe
// from any thread.
#ifndef NORMD_SERVER_SESSION_RECORD_RECORD_H_
#define NORMD_SERVER_SESSION_RECORD_RECORD_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/session/session_table.h"
#include "server/session/stored_session.h"

namespace normd {

// The newest schema of records; all older ones are read. A record has the oldest in which nothing of it is lost, so
// that older servers read what they can and refuse the rest. 2: LpNorm with `p` or `axes`.
inline constexpr uint32_t kRecordSchema = 2;

// What making a record takes at most: the message and its bytes.
int64_t ExportBytes(const StoredSession& stored);
// Equal sessions give equal bytes.
std::string SerializeRecord(const StoredSession& stored);

// The record as stores keep it, so that a step writes only what it changed: the head, which a step leaves alone (spec,
// parameters, labels, ttl, ...); the state (version, statistics, step ids, update time); and where there are many
// clients, a row for each of them. See record.proto.
std::string SerializeHead(const Session& session);
// REQUIRES: TakeClientRows was called since the last step. Uses the memory of `bytes` again.
void SerializeState(const StoredSession& stored, std::string* bytes);
std::string SerializeState(const StoredSession& stored);
// The rows of clients to write along with the state; they count as written.
std::vector<ClientRow> TakeClientRows(StoredSession* stored);

// The inverse, epoch and times as recorded. DATA_LOSS: not a record, or a wrong checksum. FAILED_PRECONDITION: a schema
// this server does not know. INVALID_ARGUMENT, with field paths relative to the record: values that cannot be.
absl::StatusOr<StoredSession> ParseRecord(std::string_view bytes);
absl::StatusOr<StoredSession> ParseParts(std::string_view head, std::string_view state,
                                         absl::Span<const ClientRow> clients = {});
// A session without parameters and statistics, from the first kHeadSummaryBytes and kStateSummaryBytes; null: an older
// server has written them, and they must be read as a whole.
absl::StatusOr<SessionPtr> ParseSummary(std::string_view head, std::string_view state);

// A serialised record, with the checksum's field appended: also a half of one as older servers wrote it. REQUIRES:
// crc32c is not set in it.
std::string SealRecord(std::string bytes);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_RECORD_RECORD_H_
