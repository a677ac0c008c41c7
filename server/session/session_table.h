// Where a DurableStore keeps its rows: SqliteTable (a file) and PostgresTable (shared by replicas). A table knows keys,
// revisions and bytes; what they mean is the store's.
// In the path: called by the store's threads and by nothing else; every call may wait for a disk or a network.
// Threads: a table is one connection and belongs to one thread at a time; see StoreTables.
#ifndef NORMD_SERVER_SESSION_SESSION_TABLE_H_
#define NORMD_SERVER_SESSION_SESSION_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/session/session_store.h"

namespace normd {

// Which row, and which of its contents. Every creation has a key of its own, never used again; every write of a row
// raises its revision by 1: what was read under one RowVersion is what is there as long as the row has it.
struct RowVersion {
  int64_t key = 0;  // at least 1; 0: no row
  int64_t revision = 0;

  bool operator==(const RowVersion&) const = default;
};

// One client's step ids, in a row that goes with its session's.
struct ClientRow {
  int64_t slot = 0;    // which one of the session's
  std::string record;  // empty in a change: the row goes
};

// A row as it was read. `head` and `state` are the two halves of a record (see record.h).
struct SessionRow {
  std::string id;
  RowVersion version;
  // Not read beyond this: it has the version that the reader knows, or it would have been too many bytes at a time.
  bool unchanged = false;
  bool left_out = false;
  std::string head;
  std::string state;
  std::vector<ClientRow> clients;
  // What the table says beside the record, which has them, too.
  int64_t bytes = 0;
  std::optional<absl::Time> expires_at;
};

// A row to read, and the version of it that the reader already has.
struct RowRequest {
  std::string id;
  RowVersion known;  // key 0: none
};

// One row to write. An insert has no `expected`; every other change is made only if the row has exactly that version.
struct RowChange {
  enum class Kind : uint8_t {
    kInsert,  // all fields
    kState,   // state, expires_at and clients
    kAll,     // head, labels, bytes, state, expires_at and clients
    kDelete,  // its clients go with it
  };
  Kind kind = Kind::kState;
  std::string id;
  RowVersion expected;
  std::string head;
  std::string state;
  std::string labels;  // LabelText of the session's
  int64_t bytes = 0;   // QuotaBytes
  std::optional<absl::Time> expires_at;
  std::vector<ClientRow> clients;  // those that have changed
};

// What a list shows of a session stands within the first bytes of the two halves of its record.
inline constexpr int64_t kHeadSummaryBytes = 16 << 10;
inline constexpr int64_t kStateSummaryBytes = 128;

// What all rows amount to.
struct TableTotals {
  int64_t sessions = 0;
  int64_t bytes = 0;
};

// "\nkey=value\n...", keys rising: a label is searched for as LabelText of it alone.
std::string LabelText(const std::map<std::string, std::string>& labels);

class SessionTable {
 public:
  virtual ~SessionTable() = default;

  // Whether others may write the rows, too.
  virtual bool shared() const = 0;

  // Makes the connection to the rows if there is none. Returns a number that rises with every new one: what was known
  // before may be gone then, and at level `process` its revisions may have been given out again, to other contents.
  virtual absl::StatusOr<int64_t> Connect() = 0;

  // The rows of `requests` that exist, in any order, each as it was at one moment. Those that would take what is read
  // over `max_bytes` are left out; one is read in any case.
  virtual absl::StatusOr<std::vector<SessionRow>> Load(absl::Span<const RowRequest> requests, int64_t max_bytes) = 0;

  // One page in the order of ids (bytewise), rows that expired by `now` left out: the first kHeadSummaryBytes of every
  // head and kStateSummaryBytes of every state, and no clients.
  virtual absl::StatusOr<std::vector<SessionRow>> Page(const ListQuery& query, absl::Time now) = 0;

  // Ids of at most `limit` rows that expired by `now`, the earliest first.
  virtual absl::StatusOr<std::vector<std::string>> Expired(absl::Time now, int64_t limit) = 0;

  virtual absl::StatusOr<TableTotals> Totals() = 0;

  // All of `changes` in one transaction, at the table's durability when it returns. For each change the version that
  // the row now has (key 0 after a delete), or nothing where the row had not the expected version or, for an insert,
  // the id is taken; the others are written all the same. On an error none is published; whether a later reader finds
  // them is not known. UNAVAILABLE when the connection was lost since Connect. REQUIRES: ids are set and distinct, but
  // for a delete directly before an insert of the same id.
  virtual absl::StatusOr<std::vector<std::optional<RowVersion>>> Write(absl::Span<const RowChange> changes) = 0;

  // Whether what holds the rows is whole: DATA_LOSS names the first thing that is not. Reads all of it.
  virtual absl::Status CheckIntegrity() { return absl::OkStatus(); }
  // How much that is.
  virtual int64_t SizeBytes() const { return 0; }
  // Makes a CheckIntegrity that is under way end soon, with an error. From any thread.
  virtual void Interrupt() {}

  // True after a flush failed: what reached the disk is unknown and must never be acknowledged. Writes are refused.
  virtual bool failed() const = 0;
};

// The connections of one store: one to write, one to read sessions, one for lists, so that a long list is nobody else's
// wait.
struct StoreTables {
  std::unique_ptr<SessionTable> writer, reader, lister;
  std::unique_ptr<SessionTable> checker;  // for CheckIntegrity when the store is opened; null: others see to it
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_SESSION_TABLE_H_
