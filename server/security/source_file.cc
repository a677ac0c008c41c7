#include "server/security/source_file.h"

#include <sys/stat.h>

#include <system_error>

#include "kernels/base/errors.h"
#include "kernels/base/strings.h"
#include "server/base/error_reasons.h"
#include "server/base/regular_file.h"

namespace normd {
namespace {

constexpr size_t kMaxBytes = size_t{4} << 20;

absl::Status CheckMode(const SourceFile& file, mode_t mode) {
  if ((mode & S_IWOTH) != 0) return BadFileError(file, 0, "can be changed by every user; chmod o-w");
  if (!file.secret) return absl::OkStatus();
  if ((mode & (S_IRWXO | S_IWGRP)) != 0) {
    return BadFileError(file, 0, "is open to other users, as a file with secrets must not be; chmod 600, or 640");
  }
  return absl::OkStatus();
}

absl::Status ProblemError(const SourceFile& file, FileProblem problem, int number) {
  const auto system = [&](std::string_view what) {
    return BadFileError(file, 0, Concat(what, ": ", std::generic_category().message(number)));
  };
  switch (problem) {
    case FileProblem::kOpen:
      return system("cannot be opened");
    case FileProblem::kStat:
      return system("cannot be looked at");
    case FileProblem::kRead:
      return system("cannot be read");
    case FileProblem::kNotRegular:
      return BadFileError(file, 0, "is no regular file");
    case FileProblem::kTooLarge:
      break;
  }
  return BadFileError(file, 0, "has over 4 MiB");
}

}  // namespace

absl::Status BadFileError(const SourceFile& file, int line, std::string_view what) {
  const std::string place = line == 0 ? file.path : Concat(file.path, ", line ", line);
  return MakeError(ServerReason("BAD_FILE"),
                   {.field = file.option, .value = place, .limit = "a file as server/README.md describes it"},
                   Concat(place, ": ", what));
}

absl::Status FileChangingError(std::string_view option, const std::string& path) {
  return MakeError(ServerReason("FILE_CHANGING"),
                   {.field = std::string(option), .value = path, .limit = "a file that is renamed into place"},
                   Concat("is ", path,
                          ", which keeps changing; the last good content stays until it rests: write a file beside it "
                          "and rename that"));
}

absl::StatusOr<std::string> ReadSourceFile(const SourceFile& file, std::string* state) {
  const auto check = [&file, state](const struct stat& info) {
    if (state != nullptr) *state = FileState(info);
    return CheckMode(file, info.st_mode);
  };
  return ReadRegularFile(file.path, kMaxBytes, check,
                         [&file](FileProblem problem, int number) { return ProblemError(file, problem, number); });
}

}  // namespace normd
