#include "server/session/sqlite/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "absl/status/status.h"
#include "kernels/base/strings.h"

namespace normd {
namespace {

UniqueFd OpenFile(const std::string& path) { return UniqueFd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)); }

bool Lock(const UniqueFd& file) { return flock(file.get(), LOCK_EX | LOCK_NB) == 0; }

}  // namespace

absl::StatusOr<std::unique_ptr<FileLock>> FileLock::Take(const std::string& store) {
  const std::string path = Concat(store, ".lock");
  UniqueFd file = OpenFile(path);
  if (!file.valid()) {
    return absl::FailedPreconditionError(
        Concat("the session store's folder cannot be written: ", path, ": ", std::system_category().message(errno)));
  }
  if (Lock(file)) return std::unique_ptr<FileLock>(new FileLock(path, std::move(file)));
  return absl::FailedPreconditionError(
      Concat("another server uses this session store: ", path,
             " is locked; give this server a folder of its own (--data_dir), or have both share PostgreSQL"));
}

bool FileLock::Holds() {
  MutexLock lock(mu_);
  if (lost_) return false;
  struct stat held {
  }, named{};
  if (fstat(file_.get(), &held) == 0 && stat(path_.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
      held.st_ino == named.st_ino) {
    return true;
  }
  UniqueFd file = OpenFile(path_);
  if (!file.valid()) return true;  // nor can another server make it
  lost_ = !Lock(file);
  if (!lost_) file_ = std::move(file);
  return !lost_;
}

}  // namespace normd
