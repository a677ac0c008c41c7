// Where a DurableStore keeps its rows: SqliteTable (a file) or PostgresTable (shared by replicas). A table knows keys,
// revisions and bytes; the store knows what they mean.
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

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/session/session_store.h"

namespace normd {

// Names one row and one of its contents. Every creation has a key of its own that is never used again, and every write
// of a row raises its revision by 1, so a row has the same content as long as it has the same RowVersion.
struct RowVersion {
  int64_t key = 0;  // at least 1; 0: no row
  int64_t revision = 0;

  bool operator==(const RowVersion&) const = default;
};

// The step ids of one client, in a row that is deleted with its session's row.
struct ClientRow {
  int64_t slot = 0;    // number of the row among the session's client rows
  std::string record;  // empty in a change: deletes the row
};

// A row as it was read. `head` and `state` are the two parts in which the record of a session is stored: the head part
// changes with the session's configuration, the state part with every step (see record/record.h). Databases have
// columns of these names, so the names stay.
struct SessionRow {
  std::string id;
  RowVersion version;
  // Head, state and clients were not read, because the row has the version that the reader knows (`unchanged`) or would
  // have exceeded the bytes of one load (`left_out`).
  bool unchanged = false;
  bool left_out = false;
  std::string head;
  std::string state;
  std::vector<ClientRow> clients;
  // Columns beside the record, which holds the same values. Load alone reads them.
  std::string labels;
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
    kInsert,  // writes all fields
    kState,   // writes state, expires_at and clients
    kAll,     // writes head, labels, bytes, state, expires_at and clients
    kDelete,  // deletes the client rows, too
  };
  Kind kind = Kind::kState;
  std::string id;
  RowVersion expected;
  std::string head;
  std::string state;
  std::string labels;  // LabelText of the session's labels
  int64_t bytes = 0;   // QuotaBytes
  std::optional<absl::Time> expires_at;
  std::vector<ClientRow> clients;  // only those that have changed
};

// The values that a list shows of a session stand within these first bytes of its head and its state part.
inline constexpr int64_t kHeadSummaryBytes = 16 << 10;
inline constexpr int64_t kStateSummaryBytes = 128;

// Sums over all rows, and over those of each tenant but the default one.
struct TableTotals {
  SessionTotals all;
  TotalsByTenant tenants;
};

// "\nkey=value\n...", with rising keys, so that a label is found by searching for the LabelText of that label alone.
std::string LabelText(const std::map<std::string, std::string>& labels);

class SessionTable {
 public:
  virtual ~SessionTable() = default;

  // Whether other servers may write the rows, too.
  virtual bool shared() const = 0;

  // Opens the connection to the rows if there is none. Returns a number that rises with every new connection: rows
  // known from before may be gone then, and at durability `process` their revisions may have been given out again for
  // other contents.
  virtual absl::StatusOr<int64_t> Connect() = 0;

  // The rows of `requests` that exist, in any order, each as it was at one moment. Rows that would take the bytes read
  // over `max_bytes` are left out, but one row is read in any case.
  virtual absl::StatusOr<std::vector<SessionRow>> Load(absl::Span<const RowRequest> requests, int64_t max_bytes) = 0;

  // One page of rows in RangeOf(query) in the order of ids (bytewise), without rows that expired by `now`. Reads only
  // the first kHeadSummaryBytes of every head and kStateSummaryBytes of every state, and no clients.
  virtual absl::StatusOr<std::vector<SessionRow>> Page(const ListQuery& query, absl::Time now) = 0;

  // Ids of at most `limit` rows that expired by `now`, the earliest expiry first.
  virtual absl::StatusOr<std::vector<std::string>> Expired(absl::Time now, int64_t limit) = 0;

  // Reads an index over all rows, and the rows of tenants.
  virtual absl::StatusOr<TableTotals> Totals() = 0;

  // For each change the version that the row now has (key 0 after a delete), or nothing if the row did not have the
  // expected version or, for an insert, the id is taken.
  using Versions = std::vector<std::optional<RowVersion>>;
  // The next changes of a transaction; empty: there are no more. May wait. What it returns stays as it is until Write
  // returns.
  using NextPart = absl::FunctionRef<absl::Span<const RowChange>()>;

  // Writes all parts in one transaction, which has the table's durability when Write returns. A change that finds
  // another version is left out, and the others are written all the same; a part finds what earlier parts have written.
  // After an error none may be published, and it is not known whether a later reader finds them. UNAVAILABLE if the
  // connection was lost since Connect. REQUIRES: ids are set and distinct in each part, except for a delete directly
  // before an insert of the same id; a shared table gets everything in the first part, because servers lock rows in the
  // order of ids.
  virtual absl::StatusOr<Versions> Write(NextPart next) = 0;
  // Writes one part.
  absl::StatusOr<Versions> Write(absl::Span<const RowChange> changes);

  // Whether the storage that holds the rows is intact; DATA_LOSS names the first defect. Reads all of the storage.
  virtual absl::Status CheckIntegrity() { return absl::OkStatus(); }
  // Bytes that CheckIntegrity reads.
  virtual int64_t SizeBytes() const { return 0; }
  // Bytes of a log that is not yet part of what CheckIntegrity reads; 0 if there is none. Safe from any thread.
  virtual int64_t LogBytes() const { return 0; }
  // Makes a running CheckIntegrity end soon, with an error. Safe from any thread.
  virtual void Interrupt() {}

  // True after a flush failed: what reached the disk is unknown and must never be acknowledged. Writes are refused
  // then.
  virtual bool failed() const = 0;
  // Why, in words. REQUIRES: failed().
  virtual std::string_view failure() const { return "a flush of the session store failed"; }
};

// The connections of one store: one to write, one to read sessions and one for lists, so that nothing else waits for a
// long list.
struct StoreTables {
  std::unique_ptr<SessionTable> writer, reader, lister;
  std::unique_ptr<SessionTable> checker;  // for CheckIntegrity when the store is opened; null: no check
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_SESSION_TABLE_H_
