#include "server/security/token_list.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "kernels/base/strings.h"
#include "server/base/sha256.h"

namespace normd {
namespace {

constexpr std::string_view kHashPrefix = "sha256:";
constexpr std::string_view kExpiresPrefix = "expires=";
constexpr std::string_view kForm = "a line is NAME sha256:HEX [expires=2027-01-01T00:00:00Z]";

std::optional<TokenHash> ParseHash(std::string_view text) {
  if (!text.starts_with(kHashPrefix)) return std::nullopt;
  text.remove_prefix(kHashPrefix.size());
  TokenHash hash;
  if (text.size() != 2 * hash.size() || !std::all_of(text.begin(), text.end(), absl::ascii_isxdigit)) {
    return std::nullopt;
  }
  const std::string bytes = absl::HexStringToBytes(std::string(text));
  std::copy(bytes.begin(), bytes.end(), hash.begin());
  return hash;
}

std::optional<absl::Time> ParseExpiry(std::string_view text) {
  if (!text.starts_with(kExpiresPrefix)) return std::nullopt;
  text.remove_prefix(kExpiresPrefix.size());
  absl::Time time;
  std::string error;
  // ParseTime takes "infinite-past" and the like, too.
  if (text.empty() || !absl::ascii_isdigit(static_cast<unsigned char>(text[0]))) return std::nullopt;
  if (!absl::ParseTime(absl::RFC3339_full, std::string(text), &time, &error)) return std::nullopt;
  return time;
}

// An error is text that says what is wrong with the line.
std::optional<std::string> ParseLine(const std::vector<std::string>& words, TokenRow* row) {
  if (words.size() < 2 || words.size() > 3) return Concat("has not 2 or 3 words: ", kForm);
  if (!IsTokenName(words[0])) return Concat("does not begin with a name of 1 to 63 letters, digits, . _ -: ", kForm);
  row->name = words[0];
  const std::optional<TokenHash> hash = ParseHash(words[1]);
  if (!hash.has_value()) return Concat("has no sha256: and 64 hexadecimal digits as its second word: ", kForm);
  row->hash = *hash;
  if (words.size() == 2) return std::nullopt;
  const std::optional<absl::Time> expires = ParseExpiry(words[2]);
  if (!expires.has_value()) return Concat("has no expires= and a time as its third word: ", kForm);
  row->expires = *expires;
  return std::nullopt;
}

}  // namespace

TokenHash HashToken(std::string_view token) {
  if (const std::optional<TokenHash> hash = Sha256(token); hash.has_value()) return *hash;
  // A hash that could not be computed must equal no other.
  TokenHash hash;
  std::generate(hash.begin(), hash.end(), std::random_device());
  return hash;
}

bool IsTokenName(std::string_view name) {
  return !name.empty() && name.size() <= 63 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
  });
}

std::string NewToken() {
  std::string bytes(32, '\0');
  const bool done = RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(bytes.size())) == 1;
  return done ? Concat("normd_", absl::BytesToHexString(bytes)) : "";
}

std::string TokenLine(std::string_view name, std::string_view token) {
  const TokenHash hash = HashToken(token);
  const std::string bytes(hash.begin(), hash.end());
  return Concat(name, " ", kHashPrefix, absl::BytesToHexString(bytes));
}

absl::StatusOr<TokenList> TokenList::Parse(const SourceFile& file, std::string_view text) {
  TokenList list;
  std::random_device random;
  for (uint64_t& word : list.secret_) word = uint64_t{random()} << 32 | random();
  int line = 0;
  for (const auto& part : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++line;
    const std::vector<std::string> words = absl::StrSplit(part, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty() || words[0][0] == '#') continue;
    TokenRow row;
    if (const auto error = ParseLine(words, &row); error.has_value()) return BadFileError(file, line, *error);
    if (!list.Add(std::move(row))) return BadFileError(file, line, "has the hash of an earlier line");
  }
  return list;
}

bool TokenList::Add(TokenRow row) {
  const uint64_t key = KeyOf(row.hash);
  const auto [begin, end] = index_.equal_range(key);
  if (std::any_of(begin, end, [&](const auto& entry) { return rows_[entry.second].hash == row.hash; })) return false;
  index_.emplace(key, rows_.size());
  rows_.push_back(std::move(row));
  return true;
}

uint64_t TokenList::KeyOf(const TokenHash& hash) const {
  uint64_t words[2];
  std::memcpy(words, hash.data(), sizeof(words));
  const auto product = static_cast<unsigned __int128>(words[0] ^ secret_[0]) * (words[1] ^ secret_[1]);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

std::optional<size_t> TokenList::Find(std::string_view token) const {
  const TokenHash hash = HashToken(token);
  const auto [begin, end] = index_.equal_range(KeyOf(hash));
  for (auto entry = begin; entry != end; ++entry) {
    if (CRYPTO_memcmp(rows_[entry->second].hash.data(), hash.data(), hash.size()) == 0) return entry->second;
  }
  return std::nullopt;
}

}  // namespace normd
