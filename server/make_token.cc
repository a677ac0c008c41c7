#include "server/make_token.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/base/error_reasons.h"
#include "server/base/unique_fd.h"
#include "server/security/source_file.h"
#include "server/security/token_list.h"

namespace normd {
namespace {

bool Exists(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 || errno != ENOENT;
}

}  // namespace

absl::StatusOr<std::string> MakeToken(const std::string& name, const std::string& tokens_file) {
  if (!IsTokenName(name)) {
    return OutOfRangeError("--make_token", name, "1 to 63 letters, digits, dots, underscores and hyphens",
                           ServerReason("BAD_OPTION"));
  }
  if (tokens_file.empty()) return MissingError("--tokens_file", "the file that the token's hash is added to");
  const SourceFile file = {"--tokens_file", tokens_file, /*secret=*/true};
  std::string before;
  if (Exists(tokens_file)) {
    NORMD_ASSIGN_OR_RETURN(before, ReadSourceFile(file));
    NORMD_RETURN_IF_ERROR(TokenList::Parse(file, before).status());
  }
  const std::string token = NewToken();
  if (token.empty()) return absl::InternalError("the system gives no random numbers");
  const std::string line = Concat(before.empty() || before.ends_with('\n') ? "" : "\n", TokenLine(name, token), "\n");
  // A single write at the end of the file, so that a server which reads the file meanwhile sees the line or does not.
  const UniqueFd fd(open(tokens_file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  const bool written = fd.valid() && write(fd.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size()) &&
                       fsync(fd.get()) == 0;
  if (written) return token;
  return BadFileError(file, 0, Concat("cannot be written: ", std::generic_category().message(errno)));
}

}  // namespace normd
