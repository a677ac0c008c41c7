// SQLite as this project uses it: a connection and its statements, with absl::Status for errors.
// In the path: used by SqliteTable. Ownership: a statement borrows its connection, which must outlive the statement.
// Threads: a connection and its statements belong to one thread at a time.
#ifndef NORMD_SERVER_SESSION_SQLITE_SQLITE_H_
#define NORMD_SERVER_SESSION_SQLITE_SQLITE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_blob;
struct sqlite3_stmt;

namespace normd {

class SqliteConnection;

// A prepared statement. Bind counts from 1 and columns count from 0, as in SQLite. Bound text and blobs are borrowed
// until Reset.
class SqliteStatement {
 public:
  SqliteStatement() = default;

  SqliteStatement& Bind(int index, int64_t value);
  SqliteStatement& Bind(int index, std::optional<int64_t> value);
  SqliteStatement& BindText(int index, std::string_view text);
  SqliteStatement& BindBlob(int index, std::string_view blob);

  // True if there is a row. After an error, and when there are no more rows, the statement is reset.
  absl::StatusOr<bool> Step();
  // Steps to the end, for statements without rows.
  absl::Status Run();
  void Reset();

  int64_t Int(int column) const;
  bool IsNull(int column) const;
  std::string_view Text(int column) const;  // also of blobs; valid until the next Step or Reset

 private:
  friend class SqliteConnection;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  SqliteConnection* connection_ = nullptr;
};

class SqliteConnection {
 public:
  // Opens or creates the file. `vfs` is the name of an SQLite VFS; empty: the system's.
  static absl::StatusOr<std::unique_ptr<SqliteConnection>> Open(const std::string& path, bool read_only,
                                                                const std::string& vfs);

  absl::StatusOr<SqliteStatement> Prepare(std::string_view sql);
  // Executes one or several statements without rows.
  absl::Status Execute(const std::string& sql);
  // The first column of the first row; 0 if there are no rows.
  absl::StatusOr<int64_t> QueryInt(std::string_view sql);

  // BEGIN, `work`, COMMIT; ROLLBACK on an error of either.
  template <typename Work>
  absl::Status Transaction(Work work) {
    absl::Status status = Execute("BEGIN IMMEDIATE");
    if (status.ok()) status = work();
    if (status.ok()) status = Execute("COMMIT");
    if (!status.ok()) Rollback();
    return status;
  }

  // Moves the content of the log into the database file, as far as readers allow.
  absl::Status Checkpoint();
  // Frames that the log had after the last commit.
  int64_t log_frames() const { return log_frames_; }
  int64_t last_insert_key() const;
  // Rows that the last statement changed.
  int64_t changes() const;

  // Makes closing leave the log as it is.
  void KeepLog();

  // Whether a flush to disk failed on this connection; the content of the disk is then unknown.
  bool flush_failed() const { return flush_failed_; }

  // Makes the running statement of the connection end soon. Safe from any thread.
  void Interrupt();

  sqlite3* raw() { return database_.get(); }

 private:
  friend class SqliteStatement;
  friend class SqliteBlobReader;
  struct Close {
    void operator()(sqlite3* database) const;
  };
  SqliteConnection() = default;

  void Rollback();
  // The status for a result code of SQLite. Notes a failed flush.
  absl::Status Error(int code);

  std::unique_ptr<sqlite3, Close> database_;
  int64_t log_frames_ = 0;
  bool flush_failed_ = false;
};

// Reads the first bytes of the blobs in one column, without the rest. REQUIRES: the connection is in a transaction and
// outlives the reader.
class SqliteBlobReader {
 public:
  // Borrows both names.
  SqliteBlobReader(SqliteConnection* connection, const char* table, const char* column)
      : connection_(connection), table_(table), column_(column) {}

  // The first `max_bytes` (or all) of the blob in the row with `key`. REQUIRES: the row exists; a missing one is
  // DATA_LOSS.
  absl::StatusOr<std::string> ReadFirst(int64_t key, int64_t max_bytes);

 private:
  struct Close {
    void operator()(sqlite3_blob* blob) const;
  };

  SqliteConnection* const connection_;
  const char* const table_;
  const char* const column_;
  std::unique_ptr<sqlite3_blob, Close> blob_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_SQLITE_SQLITE_H_
