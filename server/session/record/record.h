// Translates a StoredSession to and from a serialised normd.store.v1.SessionRecord: what Export sends, Import takes and
// stores keep.
// Doubles travel bit for bit. A record is checked like any bytes from outside: a damaged one is DATA_LOSS, one that no
// server would have written is INVALID_ARGUMENT; nothing larger than its bytes is allocated.
// In the path: called by the stores. Pure functions, safe from any thread.
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

// The newest schema of records; all older ones are read. A record gets the oldest schema that loses nothing of it, so
// that older servers read what they can and refuse the rest. Schema 2 has LpNorm with `p` or `axes`; schema 3 has
// samples that are counted, a clip, names of channels and frozen sessions.
inline constexpr uint32_t kRecordSchema = 3;

// Upper bound on the bytes that making a record takes: the message and its serialised form.
int64_t ExportBytes(const StoredSession& stored);
// Returns the record as one sealed piece, as exports are. Equal sessions give equal bytes.
std::string SerializeRecord(const StoredSession& stored);

// The record as stores keep it, in parts, so that a step writes only what it changes: the head part, which a step
// leaves alone (spec, parameters, labels, ttl, ...); the state part (version, statistics, step ids, update time); and,
// if there are many clients, a row for each of them. See record.proto.
std::string SerializeHead(const Session& session);
// Replaces the content of `bytes` and reuses its memory. REQUIRES: TakeClientRows was called since the last step.
void SerializeState(const StoredSession& stored, std::string* bytes);
std::string SerializeState(const StoredSession& stored);
// The client rows to write along with the state part; they count as written afterwards.
std::vector<ClientRow> TakeClientRows(StoredSession* stored);

// The inverse; uid and times are as recorded. DATA_LOSS if the bytes are no record or have a wrong checksum,
// FAILED_PRECONDITION for a schema that this server does not know, INVALID_ARGUMENT, with field paths relative to the
// record, for values that no server writes.
absl::StatusOr<StoredSession> ParseRecord(std::string_view bytes);
absl::StatusOr<StoredSession> ParseParts(std::string_view head, std::string_view state,
                                         absl::Span<const ClientRow> clients = {});
// The session without parameters and statistics, from the first kHeadSummaryBytes of the head part and
// kStateSummaryBytes of the state part; null if an older server has written the parts, which must then be read as a
// whole.
absl::StatusOr<SessionPtr> ParseSummary(std::string_view head, std::string_view state);

// Appends the field of the checksum to a serialised record, or to a part of one as older servers wrote it. REQUIRES:
// crc32c is not set in it.
std::string SealRecord(std::string bytes);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_RECORD_RECORD_H_
