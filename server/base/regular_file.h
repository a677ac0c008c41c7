// Reads a small file that an operator names: without waiting for a pipe's writer, and never more than a limit.
// In the path: beside it, at the start and when files are watched. Safe from any thread.
#ifndef NORMD_SERVER_BASE_REGULAR_FILE_H_
#define NORMD_SERVER_BASE_REGULAR_FILE_H_

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace normd {

// Names the state that a file is in: it differs after each write, exchange or change of mode, as far as the file
// system's time of changes is fine enough.
std::string FileState(const struct stat& info);

enum class FileProblem : uint8_t { kOpen, kStat, kNotRegular, kTooLarge, kRead };

// The contents of the regular file at `path`, which may have `max_bytes`. `check` sees the file's status before
// anything is read, and its error is returned. `error_of` makes the error of a problem; `number` is errno's where the
// system says why (kOpen, kStat, kRead), else 0.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path, size_t max_bytes,
                                            absl::FunctionRef<absl::Status(const struct stat&)> check,
                                            absl::FunctionRef<absl::Status(FileProblem, int number)> error_of);

}  // namespace normd

#endif  // NORMD_SERVER_BASE_REGULAR_FILE_H_
