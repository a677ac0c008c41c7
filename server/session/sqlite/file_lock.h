// The lock file beside an SQLite store, which keeps a second server out.
// In the path: SqliteTable holds it as long as it may write. Threads: safe from any thread.
#ifndef NORMD_SERVER_SESSION_SQLITE_FILE_LOCK_H_
#define NORMD_SERVER_SESSION_SQLITE_FILE_LOCK_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"
#include "server/base/unique_fd.h"

namespace normd {

class FileLock {
 public:
  // Makes and locks the lock file of the store `store`. FAILED_PRECONDITION if another server holds it, or its folder
  // cannot be written.
  static absl::StatusOr<std::unique_ptr<FileLock>> Take(const std::string& store);

  // False if the file was removed or replaced and another server has locked the new one. Where nobody has yet, locks
  // the new one.
  bool Holds();

 private:
  FileLock(std::string path, UniqueFd file) : path_(std::move(path)), file_(std::move(file)) {}

  const std::string path_;
  Mutex mu_;
  UniqueFd file_ ABSL_GUARDED_BY(mu_);
  bool lost_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_SQLITE_FILE_LOCK_H_
