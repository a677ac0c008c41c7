#include "server/base/regular_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/base/unique_fd.h"

namespace normd {

std::string FileState(const struct stat& info) {
  const auto time = [](const timespec& when) { return Concat(when.tv_sec, ".", when.tv_nsec); };
  // The time of the last change of the inode cannot be set by a program, as that of the content can.
  return Concat(info.st_dev, ":", info.st_ino, ":", info.st_size, ":", time(info.st_mtim), ":", time(info.st_ctim));
}

absl::StatusOr<std::string> ReadRegularFile(const std::string& path, size_t max_bytes,
                                            absl::FunctionRef<absl::Status(const struct stat&)> check,
                                            absl::FunctionRef<absl::Status(FileProblem, int number)> error_of) {
  // Without O_NONBLOCK, the open of a named pipe would wait for its writer.
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return error_of(FileProblem::kOpen, errno);
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return error_of(FileProblem::kStat, errno);
  if (!S_ISREG(info.st_mode)) return error_of(FileProblem::kNotRegular, 0);
  if (static_cast<size_t>(info.st_size) > max_bytes) return error_of(FileProblem::kTooLarge, 0);
  NORMD_RETURN_IF_ERROR(check(info));
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t got = read(fd.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return error_of(FileProblem::kRead, errno);
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > max_bytes) return error_of(FileProblem::kTooLarge, 0);  // it grew meanwhile
  }
}

}  // namespace normd
