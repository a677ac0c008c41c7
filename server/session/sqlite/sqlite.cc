#include "server/session/sqlite/sqlite.h"

#include <sqlite3.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"

namespace normd {

namespace {

// Another process may hold the file for a moment: a backup, or a program that inspects it.
constexpr int kBusyMillis = 5000;

std::string CodeText(int code) { return absl::StrCat("SQLite error ", code, " (", sqlite3_errstr(code), ")"); }

int KeepLogFrames(void* frames, sqlite3* /*database*/, const char* /*schema*/, int count) {
  *static_cast<int64_t*>(frames) = count;
  return SQLITE_OK;
}

}  // namespace

void SqliteStatement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

// Binding fails only for a wrong index or without memory; Step then reports the failure.
SqliteStatement& SqliteStatement::Bind(int index, int64_t value) {
  sqlite3_bind_int64(statement_.get(), index, value);
  return *this;
}

SqliteStatement& SqliteStatement::Bind(int index, std::optional<int64_t> value) {
  if (value.has_value()) return Bind(index, *value);
  sqlite3_bind_null(statement_.get(), index);
  return *this;
}

SqliteStatement& SqliteStatement::BindText(int index, std::string_view text) {
  sqlite3_bind_text64(statement_.get(), index, text.data(), text.size(), SQLITE_STATIC, SQLITE_UTF8);
  return *this;
}

SqliteStatement& SqliteStatement::BindBlob(int index, std::string_view blob) {
  // A null pointer would bind NULL.
  sqlite3_bind_blob64(statement_.get(), index, blob.empty() ? "" : blob.data(), blob.size(), SQLITE_STATIC);
  return *this;
}

absl::StatusOr<bool> SqliteStatement::Step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  const int extended = sqlite3_extended_errcode(connection_->raw());
  Reset();
  if (code == SQLITE_DONE) return false;
  return connection_->Error(extended);
}

absl::Status SqliteStatement::Run() {
  absl::StatusOr<bool> row = true;
  while (row.ok() && *row) row = Step();
  return row.status();
}

void SqliteStatement::Reset() { sqlite3_reset(statement_.get()); }

int64_t SqliteStatement::Int(int column) const { return sqlite3_column_int64(statement_.get(), column); }

bool SqliteStatement::IsNull(int column) const { return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL; }

std::string_view SqliteStatement::Text(int column) const {
  const void* const data = sqlite3_column_blob(statement_.get(), column);
  const int size = sqlite3_column_bytes(statement_.get(), column);
  return data == nullptr ? std::string_view() : std::string_view(static_cast<const char*>(data), size);
}

void SqliteConnection::Close::operator()(sqlite3* database) const { sqlite3_close_v2(database); }

absl::StatusOr<std::unique_ptr<SqliteConnection>> SqliteConnection::Open(const std::string& path, bool read_only,
                                                                         const std::string& vfs) {
  std::unique_ptr<SqliteConnection> connection(new SqliteConnection());
  const int mode = read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  sqlite3* database = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &database, mode | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
                                   vfs.empty() ? nullptr : vfs.c_str());
  connection->database_.reset(database);
  if (code != SQLITE_OK) return connection->Error(code);
  sqlite3_busy_timeout(database, kBusyMillis);
  // The writer's connection puts the log away; a reader that closes last must not.
  if (read_only) connection->KeepLog();
  sqlite3_wal_hook(database, &KeepLogFrames, &connection->log_frames_);
  return connection;
}

absl::StatusOr<SqliteStatement> SqliteConnection::Prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(raw(), sql.data(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT,
                                      &statement, nullptr);
  if (code != SQLITE_OK) return Error(code);
  SqliteStatement result;
  result.statement_.reset(statement);
  result.connection_ = this;
  return result;
}

absl::Status SqliteConnection::Execute(const std::string& sql) {
  const int code = sqlite3_exec(raw(), sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(sqlite3_extended_errcode(raw()));
}

absl::StatusOr<int64_t> SqliteConnection::QueryInt(std::string_view sql) {
  NORMD_ASSIGN_OR_RETURN(SqliteStatement statement, Prepare(sql));
  NORMD_ASSIGN_OR_RETURN(const bool row, statement.Step());
  return row ? statement.Int(0) : 0;
}

absl::Status SqliteConnection::Checkpoint() {
  const int code = sqlite3_wal_checkpoint_v2(raw(), nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
  // Busy: readers hold old pages, which a later checkpoint will move.
  if (code == SQLITE_OK || (code & 0xff) == SQLITE_BUSY) return absl::OkStatus();
  return Error(code);
}

void SqliteConnection::KeepLog() { sqlite3_db_config(raw(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr); }

void SqliteConnection::Interrupt() { sqlite3_interrupt(raw()); }

int64_t SqliteConnection::last_insert_key() const { return sqlite3_last_insert_rowid(database_.get()); }

int64_t SqliteConnection::changes() const { return sqlite3_changes64(database_.get()); }

void SqliteBlobReader::Close::operator()(sqlite3_blob* blob) const { sqlite3_blob_close(blob); }

absl::StatusOr<std::string> SqliteBlobReader::ReadFirst(int64_t key, int64_t max_bytes) {
  int code = SQLITE_OK;
  if (blob_ == nullptr) {
    sqlite3_blob* blob = nullptr;
    code = sqlite3_blob_open(connection_->raw(), "main", table_, column_, key, /*flags=*/0, &blob);
    blob_.reset(blob);
  } else {
    code = sqlite3_blob_reopen(blob_.get(), key);
  }
  std::string bytes;
  if (code == SQLITE_OK) {
    bytes.resize(static_cast<size_t>(std::min<int64_t>(sqlite3_blob_bytes(blob_.get()), max_bytes)));
    code = sqlite3_blob_read(blob_.get(), bytes.data(), static_cast<int>(bytes.size()), 0);
  }
  if (code == SQLITE_OK) return bytes;
  blob_.reset();  // a blob is of no use after an error
  // The row or its blob is missing, though a statement has just found it there.
  return connection_->Error(code == SQLITE_ERROR ? SQLITE_CORRUPT : code);
}

void SqliteConnection::Rollback() {
  // Some errors roll back by themselves.
  if (sqlite3_get_autocommit(raw()) == 0) sqlite3_exec(raw(), "ROLLBACK", nullptr, nullptr, nullptr);
}

absl::Status SqliteConnection::Error(int code) {
  if (code == SQLITE_IOERR_FSYNC || code == SQLITE_IOERR_DIR_FSYNC) {
    // Pages may be marked clean though they were never written, so a second flush that succeeds would prove nothing.
    flush_failed_ = true;
    // Closing must not flush again either and then throw the log away.
    KeepLog();
    return StoreFailedError();
  }
  switch (code & 0xff) {
    case SQLITE_FULL:
      return StoreFullError(CodeText(code));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
      return DataLossError(CodeText(code));
    case SQLITE_IOERR:
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_NOMEM:
      return StoreUnavailableError(CodeText(code));
    default:
      return absl::InternalError(CodeText(code));
  }
}

}  // namespace normd
