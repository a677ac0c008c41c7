// Why calls are denied, and the stats of the access check. Plain values.
#ifndef NORMD_SERVER_SECURITY_ACCESS_STATS_H_
#define NORMD_SERVER_SECURITY_ACCESS_STATS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace normd {

enum class Denial : uint8_t {
  kNoCredentials,
  kMalformedCredentials,
  kUnknownToken,
  kExpiredToken,
  kTokenInPlainText,
  kMethod
};
inline constexpr size_t kDenialCount = 6;
inline constexpr std::array<std::string_view, kDenialCount> kDenialNames = {
    "no_credentials", "malformed_credentials", "unknown_token", "expired_token", "token_in_plain_text", "method"};

// The files that rules come from.
enum class RulesFile : uint8_t { kTokens, kPolicy };
inline constexpr size_t kRulesFileCount = 2;
inline constexpr std::array<std::string_view, kRulesFileCount> kRulesFileNames = {"tokens", "policy"};

struct AccessStats {
  struct File {
    int64_t loads = 0;     // contents taken, that of the start included
    int64_t failures = 0;  // contents refused
    int64_t stale = 0;     // 1: other content than the file's is in force, because the file cannot be used
  };

  std::array<int64_t, kDenialCount> denied{};
  std::array<File, kRulesFileCount> files{};
};

}  // namespace normd

#endif  // NORMD_SERVER_SECURITY_ACCESS_STATS_H_
