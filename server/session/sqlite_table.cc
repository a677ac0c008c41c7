#include "server/session/sqlite_table.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/errors.h"
#include "server/base/errors.h"
#include "server/base/status_macros.h"

namespace normd {

namespace {

// From one schema to the next, in order. A released one never changes.
// AUTOINCREMENT: a key never comes back, so that (key, revision) names one content for ever.
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
    // The totals of a million sessions without reading their heads.
    "CREATE INDEX sessions_bytes ON sessions (bytes);",
};
constexpr int64_t kSchemaVersion = std::size(kMigrations);

constexpr std::string_view kRowColumns = "s.id, t.key, t.revision, s.head, t.state";

// Microseconds since 1970; what is later than a 64-bit count is never.
std::optional<int64_t> ToColumn(std::optional<absl::Time> time) {
  if (!time.has_value()) return std::nullopt;
  return absl::ToUnixMicros(*time);
}

SessionRow ReadRow(const SqliteStatement& statement) {
  return {.id = std::string(statement.Text(0)),
          .version = {statement.Int(1), statement.Int(2)},
          .unchanged = false,
          .head = std::string(statement.Text(3)),
          .state = std::string(statement.Text(4))};
}

absl::Status SchemaError(int64_t found) {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {.field = "schema of the session store",
                    .value = absl::StrCat(found),
                    .limit = absl::StrCat("at most ", kSchemaVersion),
                    .reason = "STORE_SCHEMA"},
                   "written by a newer server");
}

absl::StatusOr<int64_t> CheckSchema(SqliteConnection* connection) {
  NORMD_ASSIGN_OR_RETURN(const int64_t version, connection->QueryInt("PRAGMA user_version"));
  if (version > kSchemaVersion) return SchemaError(version);
  return version;
}

// Each step in a transaction of its own, its number with it: one that was cut short is done again.
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

class SqliteTable::FileLock {
 public:
  static absl::StatusOr<std::unique_ptr<FileLock>> Take(const std::string& path) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) {
      return absl::FailedPreconditionError(absl::StrCat("the session store's folder cannot be written: ", path));
    }
    auto lock = std::unique_ptr<FileLock>(new FileLock(file));
    if (flock(file, LOCK_EX | LOCK_NB) == 0) return lock;
    return absl::FailedPreconditionError(
        absl::StrCat("another server uses this session store: ", path, " is locked; several servers share PostgreSQL"));
  }
  ~FileLock() { close(file_); }

 private:
  explicit FileLock(int file) : file_(file) {}
  const int file_;
};

struct SqliteTable::Statements {
  SqliteStatement load, expired, insert_session, insert_state, update_state, update_session, delete_state,
      delete_session;
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
    NORMD_ASSIGN_OR_RETURN(lock, FileLock::Take(options.path + ".lock"));
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
    // What an earlier process left in the log.
    NORMD_RETURN_IF_ERROR(connection->Checkpoint());
    NORMD_ASSIGN_OR_RETURN(checkpointer, SqliteCheckpointer::Open(options.path, setup, options.vfs));
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
  const std::pair<SqliteStatement*, std::string> statements[] = {
      {&statements_->load, absl::StrCat("SELECT ", std::string(kRowColumns),
                                        " FROM sessions s JOIN states t ON t.key = s.key WHERE s.id = ?1")},
      {&statements_->expired,
       "SELECT s.id FROM states t JOIN sessions s ON s.key = t.key WHERE t.expires_at <= ?1 LIMIT ?2"},
      {&statements_->insert_session,
       "INSERT INTO sessions (id, labels, bytes, head) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING"},
      {&statements_->insert_state, "INSERT INTO states (key, revision, expires_at, state) VALUES (?1, 1, ?2, ?3)"},
      {&statements_->update_state,
       "UPDATE states SET revision = ?2 + 1, expires_at = ?3, state = ?4 WHERE key = ?1 AND revision = ?2"},
      {&statements_->update_session, "UPDATE sessions SET labels = ?2, bytes = ?3, head = ?4 WHERE key = ?1"},
      {&statements_->delete_state, "DELETE FROM states WHERE key = ?1 AND revision = ?2"},
      {&statements_->delete_session, "DELETE FROM sessions WHERE key = ?1"},
  };
  for (const auto& [statement, sql] : statements) {
    NORMD_ASSIGN_OR_RETURN(*statement, connection_->Prepare(sql));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SessionRow>> SqliteTable::Load(absl::Span<const RowRequest> requests) {
  std::vector<SessionRow> rows;
  SqliteStatement& load = statements_->load;
  for (const RowRequest& request : requests) {
    NORMD_ASSIGN_OR_RETURN(const bool found, load.BindText(1, request.id).Step());
    if (!found) continue;
    rows.push_back(ReadRow(load));
    load.Reset();
    // Nobody else writes this file: that a row is unchanged would save nothing.
  }
  return rows;
}

absl::StatusOr<std::vector<SessionRow>> SqliteTable::Page(const ListQuery& query, absl::Time now) {
  std::string sql = absl::StrCat("SELECT ", std::string(kRowColumns),
                                 " FROM sessions s JOIN states t ON t.key = s.key WHERE s.id > ?1"
                                 " AND (t.expires_at IS NULL OR t.expires_at > ?2)");
  for (size_t i = 0; i < query.labels.size(); ++i) absl::StrAppend(&sql, " AND instr(s.labels, ?", i + 4, ") > 0");
  sql += " ORDER BY s.id LIMIT ?3";
  NORMD_ASSIGN_OR_RETURN(SqliteStatement statement, connection_->Prepare(sql));
  statement.BindText(1, query.after_id).Bind(2, absl::ToUnixMicros(now)).Bind(3, int64_t{query.page_size});
  std::vector<std::string> terms;
  terms.reserve(query.labels.size());
  for (const auto& label : query.labels) {
    terms.push_back(LabelText({label}));
    statement.BindText(static_cast<int>(terms.size()) + 3, terms.back());
  }
  std::vector<SessionRow> rows;
  while (true) {
    NORMD_ASSIGN_OR_RETURN(const bool row, statement.Step());
    if (!row) return rows;
    rows.push_back(ReadRow(statement));
  }
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
  NORMD_ASSIGN_OR_RETURN(const int64_t bytes, connection_->QueryInt("SELECT sum(bytes) FROM sessions"));
  return TableTotals{sessions, bytes};
}

absl::StatusOr<std::vector<std::optional<RowVersion>>> SqliteTable::Write(absl::Span<const RowChange> changes) {
  if (failed()) return StoreFailedError();
  std::vector<std::optional<RowVersion>> versions;
  versions.reserve(changes.size());
  NORMD_RETURN_IF_ERROR(connection_->Transaction([&]() -> absl::Status {
    for (const RowChange& change : changes) {
      NORMD_ASSIGN_OR_RETURN(std::optional<RowVersion> version, WriteOne(change));
      versions.push_back(version);
    }
    return absl::OkStatus();
  }));
  // Here, and not by SQLite itself, which would not say that a checkpoint's flush failed. The transaction stands.
  if (const absl::Status status = ShortenLog(); !status.ok() && failed()) return status;
  return versions;
}

bool SqliteTable::failed() const {
  return connection_->flush_failed() || (checkpointer_ != nullptr && checkpointer_->flush_failed());
}

// The log begins anew only when nothing is left in it: the writer itself moves the last frames, which came while the
// checkpointer worked. Twice as long as it was to be it does not grow: the writer waits.
absl::Status SqliteTable::ShortenLog() {
  const int64_t frames = connection_->log_frames();
  if (frames < pass_frames_) pass_frames_ = 0;  // a new log
  if (frames < options_.checkpoint_frames) return absl::OkStatus();
  const bool too_long = frames >= 2 * options_.checkpoint_frames;
  if (!too_long && checkpointer_->running()) return absl::OkStatus();
  checkpointer_->Wait();
  if (checkpointer_->flush_failed()) {
    connection_->KeepLog();
    return StoreFailedError();
  }
  const bool nearly_done = frames - pass_frames_ <= options_.checkpoint_frames / 4;
  if (too_long || nearly_done) return connection_->Checkpoint();
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
  return std::optional(RowVersion{key, 1});
}

absl::StatusOr<std::optional<RowVersion>> SqliteTable::UpdateState(const RowChange& change) {
  SqliteStatement& state = statements_->update_state;
  state.Bind(1, change.expected.key).Bind(2, change.expected.revision);
  NORMD_RETURN_IF_ERROR(state.Bind(3, ToColumn(change.expires_at)).BindBlob(4, change.state).Run());
  if (connection_->changes() == 0) return std::optional<RowVersion>();
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
  return std::optional(RowVersion{});
}

absl::Status SqliteTable::BackupTo(const std::string& path) {
  if (access(path.c_str(), F_OK) == 0) return absl::AlreadyExistsError(absl::StrCat(path, " exists"));
  // One read transaction; writers go on.
  NORMD_ASSIGN_OR_RETURN(SqliteStatement copy, connection_->Prepare("VACUUM INTO ?1"));
  NORMD_RETURN_IF_ERROR(copy.BindText(1, path).Run());
  // SQLite leaves that to the system.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool flushed = file >= 0 && fsync(file) == 0;
  if (file >= 0) close(file);
  return flushed ? absl::OkStatus() : StoreUnavailableError("the copy could not be flushed to its disk");
}

}  // namespace normd
