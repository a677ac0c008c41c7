#include "server/session/sqlite/sqlite_table.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "server/base/error_reasons.h"
#include "server/base/errors.h"
#include "server/base/steady_time.h"
#include "server/session/session_key.h"
#include "server/session/sqlite/sqlite_log.h"

namespace normd {

namespace {

// Each entry makes the next schema version, in order. A released entry never changes.
// AUTOINCREMENT: a key is never used again, so (key, revision) names one content for ever.
constexpr const char* kMigrations[] = {
    R"(CREATE TABLE sessions (
         key INTEGER PRIMARY KEY AUTOINCREMENT,
         id TEXT NOT NULL UNIQUE,
         labels TEXT NOT NULL,
         bytes INTEGER NOT NULL,
         head BLOB NOT NULL);
       CREATE TABLE states (
         key INTEGER PRIMARY KEY,
         revision INTEGER NOT NULL,
         expires_at INTEGER,
         state BLOB NOT NULL);
       CREATE INDEX states_expires_at ON states (expires_at) WHERE expires_at IS NOT NULL;)",
    // Lets Totals sum over a million sessions without reading their heads.
    "CREATE INDEX sessions_bytes ON sessions (bytes);",
    // Step ids of sessions with many clients: a step writes only the row of its own client.
    R"(CREATE TABLE clients (
         key INTEGER NOT NULL,
         slot INTEGER NOT NULL,
         record BLOB NOT NULL,
         PRIMARY KEY (key, slot)) WITHOUT ROWID;)",
};
constexpr int64_t kSchemaVersion = std::size(kMigrations);

constexpr std::string_view kTakenOver = "another server has taken over the session store, whose lock file was removed";

// Microseconds since 1970. A time beyond 64 bits means never.
std::optional<int64_t> ToColumn(std::optional<absl::Time> time) {
  if (!time.has_value()) return std::nullopt;
  return absl::ToUnixMicros(*time);
}

absl::Status SchemaError(int64_t found) {
  return MakeError(
      ServerReason("STORE_SCHEMA"),
      {.field = "schema of the session store",
       .value = absl::StrCat(found),
       .limit = absl::StrCat("at most ", kSchemaVersion)},
      absl::StrCat("is ", found, ", which a newer server has written; this server knows at most ", kSchemaVersion));
}

absl::StatusOr<int64_t> CheckSchema(SqliteConnection* connection) {
  NORMD_ASSIGN_OR_RETURN(const int64_t version, connection->QueryInt("PRAGMA user_version"));
  if (version > kSchemaVersion) return SchemaError(version);
  return version;
}

// Each version is made in a transaction of its own that also writes its number, so a migration that was cut short is
// done again.
absl::Status Migrate(SqliteConnection* connection) {
  NORMD_ASSIGN_OR_RETURN(int64_t version, CheckSchema(connection));
  for (; version < kSchemaVersion; ++version) {
    NORMD_RETURN_IF_ERROR(connection->Transaction([&] {
      return connection->Execute(absl::StrCat(kMigrations[version], " PRAGMA user_version = ", version + 1, ";"));
    }));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t SqliteSchemaVersion() { return kSchemaVersion; }

struct SqliteTable::Statements {
  SqliteStatement begin, end;  // around several reads that must see one moment
  SqliteStatement load, load_clients, expired;
  SqliteStatement insert_session, insert_state, update_state, update_session, delete_state, delete_session;
  SqliteStatement put_client, delete_client, delete_clients;
};

SqliteTable::SqliteTable(SqliteOptions options, std::unique_ptr<FileLock> lock,
                         std::unique_ptr<SqliteConnection> connection)
    : options_(std::move(options)),
      lock_(std::move(lock)),
      connection_(std::move(connection)),
      statements_(std::make_unique<Statements>()) {}

SqliteTable::~SqliteTable() {
  if (checkpointer_ == nullptr) return;
  checkpointer_->Wait();
  if (checkpointer_->flush_failed()) connection_->KeepLog();
}

absl::StatusOr<std::unique_ptr<SqliteTable>> SqliteTable::Open(const SqliteOptions& options) {
  std::unique_ptr<FileLock> lock;
  if (!options.read_only) {
    NORMD_ASSIGN_OR_RETURN(lock, FileLock::Take(options.path));
  }
  // Before SQLite takes over the log.
  if (!options.read_only && options.warn != nullptr) {
    const SqliteLogTail tail = ReadSqliteLog(options.path + "-wal");
    if (tail.lost_commits > 0) {
      options.warn(absl::StrCat("the log of ", options.path, " breaks off after frame ", tail.frames, ": ",
                                tail.lost_commits,
                                " commits behind it are lost (power failure at level process, or damage)"));
    }
  }
  NORMD_ASSIGN_OR_RETURN(std::unique_ptr<SqliteConnection> connection,
                         SqliteConnection::Open(options.path, options.read_only, options.vfs));
  std::unique_ptr<SqliteCheckpointer> checkpointer;
  if (options.read_only) {
    NORMD_RETURN_IF_ERROR(CheckSchema(connection.get()).status());
  } else {
    const std::string setup = absl::StrCat("PRAGMA journal_mode = WAL; PRAGMA synchronous = ",
                                           options.durability == Durability::kPower ? "FULL;" : "NORMAL;");
    NORMD_RETURN_IF_ERROR(connection->Execute(setup));
    NORMD_RETURN_IF_ERROR(Migrate(connection.get()));
    // Moves the commits that an earlier process has left in the log.
    NORMD_RETURN_IF_ERROR(connection->Checkpoint());
    NORMD_ASSIGN_OR_RETURN(checkpointer,
                           SqliteCheckpointer::Open(options.path, setup, options.vfs, options.on_checkpoint));
  }
  std::unique_ptr<SqliteTable> table(new SqliteTable(options, std::move(lock), std::move(connection)));
  table->checkpointer_ = std::move(checkpointer);
  NORMD_RETURN_IF_ERROR(table->Prepare());
  return table;
}

absl::StatusOr<std::unique_ptr<SqliteTable>> SqliteTable::OpenReader() const {
  SqliteOptions options = options_;
  options.read_only = true;
  return Open(options);
}

absl::Status SqliteTable::Prepare() {
  const std::pair<SqliteStatement*, std::string_view> statements[] = {
      {&statements_->begin, "BEGIN"},
      {&statements_->end, "COMMIT"},
      // SQLite knows a blob's length without reading the blob.
      {&statements_->load,
       "SELECT s.id, t.key, t.revision, length(s.head) + length(t.state),"
       " CASE WHEN length(s.head) + length(t.state) <= ?2 THEN s.head END,"
       " CASE WHEN length(s.head) + length(t.state) <= ?2 THEN t.state END, s.bytes, t.expires_at, s.labels"
       " FROM sessions s JOIN states t ON t.key = s.key WHERE s.id = ?1"},
      {&statements_->load_clients, "SELECT slot, record FROM clients WHERE key = ?1"},
      {&statements_->expired,
       "SELECT s.id FROM states t JOIN sessions s ON s.key = t.key WHERE t.expires_at <= ?1"
       " ORDER BY t.expires_at LIMIT ?2"},
      {&statements_->insert_session,
       "INSERT INTO sessions (id, labels, bytes, head) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING"},
      {&statements_->insert_state, "INSERT INTO states (key, revision, expires_at, state) VALUES (?1, 1, ?2, ?3)"},
      {&statements_->update_state,
       "UPDATE states SET revision = ?2 + 1, expires_at = ?3, state = ?4 WHERE key = ?1 AND revision = ?2"},
      {&statements_->update_session, "UPDATE sessions SET labels = ?2, bytes = ?3, head = ?4 WHERE key = ?1"},
      {&statements_->delete_state, "DELETE FROM states WHERE key = ?1 AND revision = ?2"},
      {&statements_->delete_session, "DELETE FROM sessions WHERE key = ?1"},
      {&statements_->put_client, "INSERT OR REPLACE INTO clients (key, slot, record) VALUES (?1, ?2, ?3)"},
      {&statements_->delete_client, "DELETE FROM clients WHERE key = ?1 AND slot = ?2"},
      {&statements_->delete_clients, "DELETE FROM clients WHERE key = ?1"},
  };
  for (const auto& [statement, sql] : statements) {
    NORMD_ASSIGN_OR_RETURN(*statement, connection_->Prepare(sql));
  }
  return absl::OkStatus();
}

// Makes everything that `read` reads come from one moment.
template <typename Read>
absl::Status SqliteTable::InSnapshot(Read read) {
  NORMD_RETURN_IF_ERROR(statements_->begin.Run());
  const absl::Status status = read();
  const absl::Status ended = statements_->end.Run();
  return status.ok() ? ended : status;
}

absl::StatusOr<std::vector<SessionRow>> SqliteTable::Load(absl::Span<const RowRequest> requests, int64_t max_bytes) {
  std::vector<SessionRow> rows;
  int64_t bytes = 0;
  NORMD_RETURN_IF_ERROR(InSnapshot([&]() -> absl::Status {
    for (const RowRequest& request : requests) {
      const int64_t rest = bytes == 0 ? std::numeric_limits<int64_t>::max() : max_bytes - bytes;
      NORMD_RETURN_IF_ERROR(LoadOne(request.id, rest, &bytes, &rows));
    }
    return absl::OkStatus();
  }));
  return rows;
}

// Ignores which versions the reader knows: nobody else writes this file, so leaving out unchanged rows would save
// nothing.
absl::Status SqliteTable::LoadOne(const std::string& id, int64_t max_bytes, int64_t* bytes,
                                  std::vector<SessionRow>* rows) {
  SqliteStatement& load = statements_->load;
  NORMD_ASSIGN_OR_RETURN(const bool found, load.BindText(1, id).Bind(2, max_bytes).Step());
  if (!found) return absl::OkStatus();
  SessionRow& row = rows->emplace_back();
  row.id = std::string(load.Text(0));
  row.version = {load.Int(1), load.Int(2)};
  row.left_out = load.Int(3) > max_bytes;
  row.head = std::string(load.Text(4));
  row.state = std::string(load.Text(5));
  row.bytes = load.Int(6);
  if (!load.IsNull(7)) row.expires_at = absl::FromUnixMicros(load.Int(7));
  row.labels = std::string(load.Text(8));
  if (!row.left_out) *bytes += load.Int(3);
  load.Reset();
  return row.left_out ? absl::OkStatus() : LoadClients(&row);
}

absl::Status SqliteTable::LoadClients(SessionRow* row) {
  SqliteStatement& load = statements_->load_clients;
  load.Bind(1, row->version.key);
  while (true) {
    NORMD_ASSIGN_OR_RETURN(const bool found, load.Step());
    if (!found) return absl::OkStatus();
    row->clients.push_back({load.Int(0), std::string(load.Text(1))});
  }
}

absl::StatusOr<std::vector<SessionRow>> SqliteTable::Page(const ListQuery& query, absl::Time now) {
  std::string sql =
      "SELECT s.id, t.key, t.revision FROM sessions s JOIN states t ON t.key = s.key WHERE s.id > ?1"
      " AND s.id < ?4 AND (t.expires_at IS NULL OR t.expires_at > ?2)";
  for (size_t i = 0; i < query.labels.size(); ++i) absl::StrAppend(&sql, " AND instr(s.labels, ?", i + 5, ") > 0");
  sql += " ORDER BY s.id LIMIT ?3";
  NORMD_ASSIGN_OR_RETURN(SqliteStatement statement, connection_->Prepare(sql));
  const KeyRange range = RangeOf(query);
  statement.BindText(1, range.after)
      .BindText(4, range.end)
      .Bind(2, absl::ToUnixMicros(now))
      .Bind(3, int64_t{query.page_size});
  std::vector<std::string> terms;
  terms.reserve(query.labels.size());
  for (const auto& label : query.labels) {
    terms.push_back(LabelText({label}));
    statement.BindText(static_cast<int>(terms.size()) + 4, terms.back());
  }
  std::vector<SessionRow> rows;
  NORMD_RETURN_IF_ERROR(InSnapshot([&]() -> absl::Status {
    while (true) {
      NORMD_ASSIGN_OR_RETURN(const bool found, statement.Step());
      if (!found) break;
      SessionRow& row = rows.emplace_back();
      row.id = std::string(statement.Text(0));
      row.version = {statement.Int(1), statement.Int(2)};
    }
    return LoadSummaries(&rows);
  }));
  return rows;
}

// Reads blobs piecewise, because SQL would read a column to its end, parameters included.
absl::Status SqliteTable::LoadSummaries(std::vector<SessionRow>* rows) {
  SqliteBlobReader heads(connection_.get(), "sessions", "head");
  SqliteBlobReader states(connection_.get(), "states", "state");
  for (SessionRow& row : *rows) {
    NORMD_ASSIGN_OR_RETURN(row.head, heads.ReadFirst(row.version.key, kHeadSummaryBytes));
    NORMD_ASSIGN_OR_RETURN(row.state, states.ReadFirst(row.version.key, kStateSummaryBytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> SqliteTable::Expired(absl::Time now, int64_t limit) {
  SqliteStatement& expired = statements_->expired;
  expired.Bind(1, absl::ToUnixMicros(now)).Bind(2, limit);
  std::vector<std::string> ids;
  while (true) {
    NORMD_ASSIGN_OR_RETURN(const bool row, expired.Step());
    if (!row) return ids;
    ids.emplace_back(expired.Text(0));
  }
}

absl::StatusOr<TableTotals> SqliteTable::Totals() {
  NORMD_ASSIGN_OR_RETURN(const int64_t sessions, connection_->QueryInt("SELECT count(*) FROM sessions"));
  // A damaged number must not count.
  NORMD_ASSIGN_OR_RETURN(
      const int64_t bytes,
      connection_->QueryInt(
          "SELECT sum(CASE WHEN bytes BETWEEN 0 AND 1099511627776 THEN bytes ELSE 0 END) FROM sessions"));
  TableTotals totals = {.all = {.sessions = sessions, .bytes = bytes}, .tenants = {}};
  // Keys below "0" begin with a tenant: see session_key.h.
  NORMD_ASSIGN_OR_RETURN(SqliteStatement tenants,
                         connection_->Prepare("SELECT substr(id, 2, instr(substr(id, 2), '/') - 1) AS tenant, count(*),"
                                              " sum(CASE WHEN bytes BETWEEN 0 AND 1099511627776 THEN bytes ELSE 0 END)"
                                              " FROM sessions WHERE id < '0' GROUP BY tenant"));
  while (true) {
    NORMD_ASSIGN_OR_RETURN(const bool found, tenants.Step());
    if (!found) return totals;
    totals.tenants.emplace(tenants.Text(0), SessionTotals{.sessions = tenants.Int(1), .bytes = tenants.Int(2)});
  }
}

absl::StatusOr<SessionTable::Versions> SqliteTable::Write(NextPart next) {
  if (!HoldsLock()) return StoreUnavailableError(kTakenOver);
  if (failed()) return StoreFailedError();
  Versions versions;
  NORMD_RETURN_IF_ERROR(connection_->Transaction([&]() -> absl::Status {
    for (auto part = next(); !part.empty(); part = next()) {
      for (const RowChange& change : part) {
        NORMD_ASSIGN_OR_RETURN(versions.emplace_back(), WriteOne(change));
      }
    }
    return absl::OkStatus();
  }));
  // The log is shortened here and not by SQLite itself, which would not report that a checkpoint's flush failed. The
  // transaction stands.
  if (const absl::Status status = ShortenLog(); !status.ok() && failed()) return status;
  return versions;
}

bool SqliteTable::HoldsLock() const { return lock_ == nullptr || lock_->Holds(); }

std::string_view SqliteTable::failure() const { return HoldsLock() ? SessionTable::failure() : kTakenOver; }

bool SqliteTable::failed() const {
  return !HoldsLock() || connection_->flush_failed() || (checkpointer_ != nullptr && checkpointer_->flush_failed());
}

int64_t SqliteTable::LogBytes() const {
  struct stat log {};
  return stat((options_.path + "-wal").c_str(), &log) == 0 ? log.st_size : 0;
}

absl::Status SqliteTable::Checkpoint() {
  const absl::Time start = SteadyNow();
  absl::Status status = connection_->Checkpoint();
  if (options_.on_checkpoint != nullptr) options_.on_checkpoint(SteadyNow() - start);
  return status;
}

// The log begins anew only when nothing is left in it, so the writer itself moves the last frames, which came while the
// checkpointer worked. The log does not grow to more than twice its intended length: the writer waits.
absl::Status SqliteTable::ShortenLog() {
  const int64_t frames = connection_->log_frames();
  if (frames < pass_frames_) pass_frames_ = 0;  // a new log has begun
  if (frames < options_.checkpoint_frames) return absl::OkStatus();
  const bool too_long = frames >= 2 * options_.checkpoint_frames;
  if (!too_long && checkpointer_->running()) return absl::OkStatus();
  checkpointer_->Wait();
  if (checkpointer_->flush_failed()) {
    connection_->KeepLog();
    return StoreFailedError();
  }
  const bool nearly_done = frames - pass_frames_ <= options_.checkpoint_frames / 4;
  if (too_long || nearly_done) return Checkpoint();
  pass_frames_ = frames;
  checkpointer_->Start();
  return absl::OkStatus();
}

absl::StatusOr<std::optional<RowVersion>> SqliteTable::WriteOne(const RowChange& change) {
  switch (change.kind) {
    case RowChange::Kind::kInsert:
      return Insert(change);
    case RowChange::Kind::kState:
      return UpdateState(change);
    case RowChange::Kind::kAll:
      return UpdateAll(change);
    case RowChange::Kind::kDelete:
      return Delete(change);
  }
  return absl::InternalError("unknown kind of change");
}

absl::StatusOr<std::optional<RowVersion>> SqliteTable::Insert(const RowChange& change) {
  SqliteStatement& session = statements_->insert_session;
  session.BindText(1, change.id).BindText(2, change.labels).Bind(3, change.bytes).BindBlob(4, change.head);
  NORMD_RETURN_IF_ERROR(session.Run());
  if (connection_->changes() == 0) return std::optional<RowVersion>();
  const int64_t key = connection_->last_insert_key();
  SqliteStatement& state = statements_->insert_state;
  NORMD_RETURN_IF_ERROR(state.Bind(1, key).Bind(2, ToColumn(change.expires_at)).BindBlob(3, change.state).Run());
  NORMD_RETURN_IF_ERROR(WriteClients(key, change.clients));
  return std::optional(RowVersion{key, 1});
}

absl::StatusOr<std::optional<RowVersion>> SqliteTable::UpdateState(const RowChange& change) {
  SqliteStatement& state = statements_->update_state;
  state.Bind(1, change.expected.key).Bind(2, change.expected.revision);
  NORMD_RETURN_IF_ERROR(state.Bind(3, ToColumn(change.expires_at)).BindBlob(4, change.state).Run());
  if (connection_->changes() == 0) return std::optional<RowVersion>();
  NORMD_RETURN_IF_ERROR(WriteClients(change.expected.key, change.clients));
  return std::optional(RowVersion{change.expected.key, change.expected.revision + 1});
}

absl::StatusOr<std::optional<RowVersion>> SqliteTable::UpdateAll(const RowChange& change) {
  NORMD_ASSIGN_OR_RETURN(const std::optional<RowVersion> version, UpdateState(change));
  if (!version.has_value()) return version;
  SqliteStatement& session = statements_->update_session;
  session.Bind(1, change.expected.key).BindText(2, change.labels).Bind(3, change.bytes).BindBlob(4, change.head);
  NORMD_RETURN_IF_ERROR(session.Run());
  return version;
}

absl::StatusOr<std::optional<RowVersion>> SqliteTable::Delete(const RowChange& change) {
  SqliteStatement& state = statements_->delete_state;
  NORMD_RETURN_IF_ERROR(state.Bind(1, change.expected.key).Bind(2, change.expected.revision).Run());
  if (connection_->changes() == 0) return std::optional<RowVersion>();
  NORMD_RETURN_IF_ERROR(statements_->delete_session.Bind(1, change.expected.key).Run());
  NORMD_RETURN_IF_ERROR(statements_->delete_clients.Bind(1, change.expected.key).Run());
  return std::optional(RowVersion{});
}

absl::Status SqliteTable::CheckIntegrity() {
  // Not quick_check, which does not find that an index has lost a session.
  NORMD_ASSIGN_OR_RETURN(SqliteStatement check, connection_->Prepare("PRAGMA integrity_check(1)"));
  NORMD_ASSIGN_OR_RETURN(const bool row, check.Step());
  const std::string said(row ? check.Text(0) : "nothing");
  return said == "ok" ? absl::OkStatus()
                      : DataLossError(absl::StrCat("SQLite's integrity_check: ", said.substr(0, 200)));
}

int64_t SqliteTable::SizeBytes() const {
  struct stat file = {};
  return stat(options_.path.c_str(), &file) == 0 ? static_cast<int64_t>(file.st_size) : 0;
}

absl::Status SqliteTable::WriteClients(int64_t key, const std::vector<ClientRow>& clients) {
  for (const ClientRow& client : clients) {
    SqliteStatement& statement = client.record.empty() ? statements_->delete_client : statements_->put_client;
    statement.Bind(1, key).Bind(2, client.slot);
    if (!client.record.empty()) statement.BindBlob(3, client.record);
    NORMD_RETURN_IF_ERROR(statement.Run());
  }
  return absl::OkStatus();
}

namespace {

// Flushes a file or a folder, so that it survives a power failure.
bool FlushPath(const std::string& path, int flags) {
  const int file = open(path.c_str(), flags | O_RDONLY | O_CLOEXEC);
  const bool flushed = file >= 0 && fsync(file) == 0;
  if (file >= 0) close(file);
  return flushed;
}

}  // namespace

absl::Status SqliteTable::BackupTo(const std::string& path) {
  if (access(path.c_str(), F_OK) == 0) return absl::AlreadyExistsError(absl::StrCat(path, " exists"));
  // One read transaction; writers go on.
  NORMD_ASSIGN_OR_RETURN(SqliteStatement copy, connection_->Prepare("VACUUM INTO ?1"));
  if (absl::Status copied = copy.BindText(1, path).Run(); !copied.ok()) {
    unlink(path.c_str());  // a partial copy is no backup
    return copied;
  }
  // SQLite leaves flushing the copy to the system.
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (FlushPath(path, 0) && FlushPath(folder, O_DIRECTORY)) return absl::OkStatus();
  unlink(path.c_str());
  return StoreUnavailableError("the copy could not be flushed to its disk");
}

}  // namespace normd
