// Sessions in one SQLite file with a write-ahead log: the default store, for one server on one disk.
// In the path: each of DurableStore's tables is one connection to the file. A lock file keeps a second server out;
// other programs may read the file (a backup, the sqlite3 shell).
// Threads: as SessionTable says.
#ifndef NORMD_SERVER_SESSION_SQLITE_SQLITE_TABLE_H_
#define NORMD_SERVER_SESSION_SQLITE_SQLITE_TABLE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/session/session_table.h"
#include "server/session/sqlite/file_lock.h"
#include "server/session/sqlite/sqlite.h"
#include "server/session/sqlite/sqlite_checkpointer.h"

namespace normd {

// Name of the file in a data folder.
inline constexpr char kSqliteFileName[] = "normd.db";

struct SqliteOptions {
  std::string path;
  // kProcess: every transaction is written to the log, which is flushed with checkpoints (synchronous=NORMAL). kPower:
  // every transaction is flushed (synchronous=FULL).
  Durability durability = Durability::kPower;
  bool read_only = false;  // no lock and no migration. REQUIRES: the file exists
  std::string vfs;         // the name of an SQLite VFS; empty: the system's
  // Length of the log, in pages of 4 KiB, from which on its pages are moved into the file. Measured on 1,000 sessions
  // of 4 KiB, 64 in flight: SQLite's default of 1,000 costs 8 % of the updates.
  int64_t checkpoint_frames = 4000;
  // Called if the log ends before commits that are still in the file: power failed at durability `process`, or the file
  // is damaged. May be null.
  std::function<void(std::string_view)> warn;
  // Runs after each checkpoint, on the writer's or the checkpointer's thread. May be null.
  std::function<void(absl::Duration)> on_checkpoint;
};

// The newest version of the schema. `PRAGMA user_version` says which version a file has.
int64_t SqliteSchemaVersion();

class SqliteTable : public SessionTable {
 public:
  // Opens the file, and creates or migrates it unless read_only. FAILED_PRECONDITION if another server has the file,
  // its folder cannot be written or its schema is newer. DATA_LOSS if the file is damaged or no database.
  static absl::StatusOr<std::unique_ptr<SqliteTable>> Open(const SqliteOptions& options);

  ~SqliteTable() override;

  // Opens one more connection to the same file, for reading.
  absl::StatusOr<std::unique_ptr<SqliteTable>> OpenReader() const;

  bool shared() const override { return false; }
  absl::StatusOr<int64_t> Connect() override { return 0; }
  absl::StatusOr<std::vector<SessionRow>> Load(absl::Span<const RowRequest> requests, int64_t max_bytes) override;
  absl::StatusOr<std::vector<SessionRow>> Page(const ListQuery& query, absl::Time now) override;
  absl::StatusOr<std::vector<std::string>> Expired(absl::Time now, int64_t limit) override;
  absl::StatusOr<TableTotals> Totals() override;
  using SessionTable::Write;
  absl::StatusOr<Versions> Write(NextPart next) override;
  bool failed() const override;
  std::string_view failure() const override;
  absl::Status CheckIntegrity() override;
  int64_t SizeBytes() const override;
  int64_t LogBytes() const override;
  void Interrupt() override { connection_->Interrupt(); }

  // Writes a consistent copy to a new file while others write. ALREADY_EXISTS if `path` exists.
  absl::Status BackupTo(const std::string& path);

 private:
  struct Statements;

  SqliteTable(SqliteOptions options, std::unique_ptr<FileLock> lock, std::unique_ptr<SqliteConnection> connection);

  absl::Status Prepare();
  bool HoldsLock() const;
  // Checkpoints if the log is long.
  absl::Status ShortenLog();
  absl::Status Checkpoint();
  template <typename Read>
  absl::Status InSnapshot(Read read);
  absl::Status LoadOne(const std::string& id, int64_t max_bytes, int64_t* bytes, std::vector<SessionRow>* rows);
  absl::Status LoadClients(SessionRow* row);
  absl::Status LoadSummaries(std::vector<SessionRow>* rows);
  absl::Status WriteClients(int64_t key, const std::vector<ClientRow>& clients);
  absl::StatusOr<std::optional<RowVersion>> WriteOne(const RowChange& change);
  absl::StatusOr<std::optional<RowVersion>> Insert(const RowChange& change);
  absl::StatusOr<std::optional<RowVersion>> UpdateState(const RowChange& change);
  absl::StatusOr<std::optional<RowVersion>> UpdateAll(const RowChange& change);
  absl::StatusOr<std::optional<RowVersion>> Delete(const RowChange& change);

  const SqliteOptions options_;
  const std::unique_ptr<FileLock> lock_;  // null for readers
  const std::unique_ptr<SqliteConnection> connection_;
  std::unique_ptr<Statements> statements_;  // destroyed before the connection
  // Null for readers. Destroyed before connection_, which puts the log away when it closes.
  std::unique_ptr<SqliteCheckpointer> checkpointer_;
  int64_t pass_frames_ = 0;  // frames in the log when the checkpointer's newest pass began
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_SQLITE_SQLITE_TABLE_H_
