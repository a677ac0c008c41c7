#include "server/wiring/store_copies.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/base/unique_fd.h"
#include "server/session/record/record.h"
#include "server/session/sqlite/file_lock.h"
#include "server/session/sqlite/sqlite_table.h"

namespace normd {
namespace {

// The copy that is about to become the store, complete and checked. While it is there, no server starts.
constexpr char kRestoredSuffix[] = ".restored";
// The same while it is being made.
constexpr char kPartSuffix[] = ".restoring";

std::string StorePath(const Config& config) { return absl::StrCat(config.data_dir, "/", kSqliteFileName); }

// Limit on the bytes of records that are loaded for checking at one time.
constexpr int64_t kMaxCheckedBytes = int64_t{64} << 20;

struct CheckedRecords {
  int64_t records = 0;
  int64_t damaged = 0;
};

// Loads and checks the rows of `ids`, at most kMaxCheckedBytes at a time.
absl::Status CheckRows(SessionTable* table, std::vector<RowRequest> ids, CheckedRecords* checked) {
  while (!ids.empty()) {
    NORMD_ASSIGN_OR_RETURN(const std::vector<SessionRow> rows, table->Load(ids, kMaxCheckedBytes));
    ids.clear();
    for (const SessionRow& row : rows) {
      if (row.left_out) {
        ids.push_back({row.id, {}});
        continue;
      }
      ++checked->records;
      const absl::StatusOr<StoredSession> stored = ParseParts(row.head, row.state, row.clients);
      if (!stored.ok() || stored->published->id != row.id) ++checked->damaged;
    }
  }
  return absl::OkStatus();
}

// Checks every record of a table, page by page, and returns their number.
absl::StatusOr<int64_t> CheckRecords(SessionTable* table) {
  CheckedRecords checked;
  ListQuery query = {.page_size = 1000, .after_id = {}, .labels = {}, .all_tenants = true};
  while (true) {
    // The epoch as the time of the query lets expired sessions that are still stored be checked, too.
    NORMD_ASSIGN_OR_RETURN(const std::vector<SessionRow> rows, table->Page(query, absl::UnixEpoch()));
    if (rows.empty()) break;
    std::vector<RowRequest> ids;
    ids.reserve(rows.size());
    for (const SessionRow& row : rows) ids.push_back({row.id, {}});
    NORMD_RETURN_IF_ERROR(CheckRows(table, std::move(ids), &checked));
    query.after_id = rows.back().id;
  }
  if (checked.damaged > 0) return DataLossError(absl::StrCat(checked.damaged, " of ", checked.records, " records"));
  return checked.records;
}

absl::StatusOr<int64_t> CheckFile(const std::string& path) {
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<SqliteTable> table,
                         SqliteTable::Open({.path = path, .read_only = true}));
  return CheckRecords(table.get());
}

absl::Status FileError(const std::string& path, const std::string& what) {
  return absl::FailedPreconditionError(absl::StrCat(path, " ", what));
}

absl::Status SystemError(const std::string& path, const std::string& what) {
  return FileError(path, absl::StrCat(what, ": ", std::system_category().message(errno)));
}

bool IsThere(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

absl::Status Flush(const std::string& path, int flags) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
  if (file.valid() && fsync(file.get()) == 0) return absl::OkStatus();
  return SystemError(path, "cannot be flushed to its disk");
}

// Without checks: the paths are of one folder.
absl::Status Rename(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return SystemError(from, absl::StrCat("cannot be renamed to ", to));
}

// Refuses a file that is no backup: a folder, the store itself, a file whose newest changes are in a log beside it.
absl::Status CheckBackup(const std::string& backup, const std::string& store) {
  struct stat info = {}, stored = {}, log = {};
  if (stat(backup.c_str(), &info) != 0) return SystemError(backup, "cannot be read");
  if (!S_ISREG(info.st_mode)) return FileError(backup, "is no file; it must be one that --backup has made");
  const bool same = stat(store.c_str(), &stored) == 0 && stored.st_dev == info.st_dev && stored.st_ino == info.st_ino;
  if (same) return FileError(backup, "is the store itself; it must be a copy that --backup has made");
  if (stat((backup + "-wal").c_str(), &log) == 0 && log.st_size > 0) {
    return FileError(backup, absl::StrCat("has its newest changes in ", backup, "-wal, so it is no file of --backup: ",
                                          "start a server on a folder with both as ", kSqliteFileName));
  }
  return absl::OkStatus();
}

// Copies the backup beside the store, and checks the copy. Returns the number of its records.
absl::StatusOr<int64_t> CopyIn(const std::string& backup, const std::string& part) {
  std::error_code error;
  std::filesystem::copy_file(backup, part, std::filesystem::copy_options::overwrite_existing, error);
  if (error) return FileError(backup, absl::StrCat("cannot be copied to ", part, ": ", error.message()));
  chmod(part.c_str(), 0600);
  NORMD_RETURN_IF_ERROR(Flush(part, 0));
  absl::StatusOr<int64_t> records = CheckFile(part);
  if (records.ok()) return records;
  return absl::Status(records.status().code(),
                      absl::StrCat(backup, " is no whole copy that --backup has made: ", records.status().message()));
}

// The log goes first: without its file it is nothing, but a file with the log of another is damaged.
absl::Status MoveAway(const std::string& store, const std::string& before) {
  for (const char* suffix : {"-shm", "-wal", ""}) NORMD_RETURN_IF_ERROR(Rename(store + suffix, before + suffix));
  return absl::OkStatus();
}

void RemovePart(const std::string& part) {
  for (const char* suffix : {"", "-wal", "-shm"}) unlink((part + suffix).c_str());
}

}  // namespace

absl::StatusOr<int64_t> BackupSessionStore(const Config& config) {
  const std::string path = StorePath(config);
  if (!IsThere(path)) return FileError(path, "is not there; --data_dir must be the folder of a session store");
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<SqliteTable> table,
                         SqliteTable::Open({.path = path, .read_only = true}));
  NORMD_RETURN_IF_ERROR(table->BackupTo(config.backup));
  return CheckFile(config.backup);
}

absl::Status CheckRestored(const std::string& path) {
  if (!IsThere(path + kRestoredSuffix)) return absl::OkStatus();
  return FileError(path, "is being restored, and that was cut short: run normd --restore=FILE again");
}

absl::StatusOr<RestoredStore> RestoreSessionStore(const Config& config, absl::Time now) {
  const std::string path = StorePath(config);
  std::error_code error;
  std::filesystem::create_directories(config.data_dir, error);
  if (error) return FileError(config.data_dir, absl::StrCat("cannot be made: ", error.message()));
  NORMD_ASSIGN_OR_RETURN(const std::unique_ptr<FileLock> lock, FileLock::Take(path));
  NORMD_RETURN_IF_ERROR(CheckBackup(config.restore, path));
  const std::string part = path + kPartSuffix;
  RestoredStore restored;
  absl::StatusOr<int64_t> records = CopyIn(config.restore, part);
  if (!records.ok()) {
    RemovePart(part);
    return records.status();
  }
  restored.records = *records;
  // From here on the store before is not one that a server may open.
  NORMD_RETURN_IF_ERROR(Rename(part, path + kRestoredSuffix));
  RemovePart(part);
  NORMD_RETURN_IF_ERROR(Flush(config.data_dir, O_DIRECTORY));
  if (IsThere(path) || IsThere(path + "-wal")) {
    restored.before = absl::StrCat(path, absl::FormatTime(".before-%Y%m%dT%H%M%SZ", now, absl::UTCTimeZone()));
    NORMD_RETURN_IF_ERROR(MoveAway(path, restored.before));
    NORMD_RETURN_IF_ERROR(Flush(config.data_dir, O_DIRECTORY));
  }
  NORMD_RETURN_IF_ERROR(Rename(path + kRestoredSuffix, path));
  NORMD_RETURN_IF_ERROR(Flush(config.data_dir, O_DIRECTORY));
  return restored;
}

}  // namespace normd
