#include "client/cpp/token.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace normd::client {
namespace {

// Servers and proxies bound their headers to 8 KiB in all.
constexpr size_t kMaxTokenBytes = 4096;

// A file that was written this short a time before it was read may be written again without a sign: clocks of file
// systems tick every few milliseconds, and those of other machines differ.
constexpr absl::Duration kSettled = absl::Seconds(2);

bool IsTokenChar(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         absl::string_view("-._~+/=").find(c) != absl::string_view::npos;
}

// `where` is what the error speaks of.
absl::StatusOr<std::string> CheckToken(absl::string_view text, absl::string_view where) {
  const absl::string_view token = absl::StripAsciiWhitespace(text);
  if (token.empty()) return absl::InvalidArgumentError(absl::StrCat(where, " is empty; it must hold a bearer token"));
  if (token.size() > kMaxTokenBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, " has ", token.size(), " bytes; a bearer token has at most ", kMaxTokenBytes));
  }
  if (!std::all_of(token.begin(), token.end(), &IsTokenChar)) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, " has a character that no bearer token has; it must hold letters, digits and -._~+/= alone"));
  }
  return std::string(token);
}

// Sets errno where it returns false.
bool ReadAll(const std::string& path, std::string* text) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return false;
  // One more than a token may have, so that a large file is refused and not read.
  text->resize(2 * kMaxTokenBytes);
  file.read(text->data(), static_cast<std::streamsize>(text->size()));
  text->resize(static_cast<size_t>(file.gcount()));
  return !file.bad();
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  std::string text;
  errno = 0;
  if (!ReadAll(path, &text)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read the token file ", path, ": ", std::generic_category().message(errno)));
  }
  return CheckToken(text, absl::StrCat("the token file ", path));
}

bool IsSame(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size &&
         a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec &&
         a.st_ctim.tv_sec == b.st_ctim.tv_sec && a.st_ctim.tv_nsec == b.st_ctim.tv_nsec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Token>> Token::FromText(absl::string_view text) {
  absl::StatusOr<std::string> token = CheckToken(text, "the token");
  if (!token.ok()) return token.status();
  return std::unique_ptr<Token>(new Token("", *std::move(token)));
}

absl::StatusOr<std::unique_ptr<Token>> Token::FromFile(const std::string& path) {
  absl::StatusOr<std::string> token = ReadToken(path);
  if (!token.ok()) return token.status();
  return std::unique_ptr<Token>(new Token(path, *std::move(token)));
}

std::string Token::Get() {
  const std::lock_guard<std::mutex> lock(mu_);
  struct stat now {};
  if (path_.empty() || stat(path_.c_str(), &now) != 0 || IsSame(now, read_)) return text_;
  if (absl::StatusOr<std::string> token = ReadToken(path_); token.ok()) text_ = *std::move(token);
  const bool settled = absl::Now() - absl::TimeFromTimespec(now.st_mtim) > kSettled;
  read_ = settled ? now : (struct stat){};
  return text_;
}

}  // namespace normd::client
