// The bearer token of a Client: given as text, or kept in a file that others replace, as Kubernetes does with projected
// tokens. In the path: client::Credentials asks for the token of every call.
// Threads: safe from any thread. Ownership: Credentials own one.
#ifndef NORMD_CLIENT_CPP_TOKEN_H_
#define NORMD_CLIENT_CPP_TOKEN_H_

#include <sys/stat.h>

#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace normd::client {

class Token {
 public:
  // INVALID_ARGUMENT, which never holds the token, unless `text` is a bearer token (RFC 6750).
  static absl::StatusOr<std::unique_ptr<Token>> FromText(absl::string_view text);
  // INVALID_ARGUMENT, naming the file and the reason, unless it can be read and holds a bearer token.
  static absl::StatusOr<std::unique_ptr<Token>> FromFile(const std::string& path);

  // The token as it is now. Reads the file only if it changed since; one that is missing or holds no token then leaves
  // the last token in use, and the server decides.
  std::string Get();

 private:
  Token(std::string path, std::string text) : path_(std::move(path)), text_(std::move(text)) {}

  const std::string path_;  // empty: the text never changes
  std::mutex mu_;
  std::string text_;     // guarded by mu_, as is the next one
  struct stat read_ {};  // the file as it was before it was read; all zero: it is to be read again
};

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_TOKEN_H_
