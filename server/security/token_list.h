// The bearer tokens that a server knows, by their SHA-256 alone: the tokens themselves are in no file and no log.
// In the path: AccessRules (access_rules.h) looks a call's token up.
// Threads: a TokenList is constant once it is parsed.
#ifndef NORMD_SERVER_SECURITY_TOKEN_LIST_H_
#define NORMD_SERVER_SECURITY_TOKEN_LIST_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/security/source_file.h"

namespace normd {

using TokenHash = std::array<unsigned char, 32>;

TokenHash HashToken(std::string_view token);

// Whether `name` may name a token: 1 to 63 characters of a-z A-Z 0-9 . _ -
bool IsTokenName(std::string_view name);

// A new token: "normd_" and 64 hexadecimal digits, which make 256 random bits. Empty if the system has no random
// numbers.
std::string NewToken();

// The line of the tokens file for `token`: "ci-trainer sha256:<64 hexadecimal digits>".
std::string TokenLine(std::string_view name, std::string_view token);

struct TokenRow {
  std::string name;
  TokenHash hash;
  absl::Time expires = absl::InfiniteFuture();
};

class TokenList {
 public:
  TokenList() = default;

  // Parses lines of the form `NAME sha256:HEX [expires=2027-01-01T00:00:00Z]`; empty lines and those that begin with #
  // count for nothing. A name may stand on several lines, so that a new token of a caller can be in use before the old
  // one is removed. Errors name the line and quote nothing of it, because somebody may have put a token there.
  static absl::StatusOr<TokenList> Parse(const SourceFile& file, std::string_view text);

  // The index in rows() of `token`, expired or not; nullopt if there is none. How long it takes says nothing about the
  // hashes in the list: a hash is found by a secret function of it, and compared in constant time.
  std::optional<size_t> Find(std::string_view token) const;

  const std::vector<TokenRow>& rows() const { return rows_; }

 private:
  uint64_t KeyOf(const TokenHash& hash) const;
  // False if the hash is there already.
  bool Add(TokenRow row);

  std::array<uint64_t, 2> secret_{};  // random, for each list
  std::vector<TokenRow> rows_;
  std::unordered_multimap<uint64_t, size_t> index_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SECURITY_TOKEN_LIST_H_
