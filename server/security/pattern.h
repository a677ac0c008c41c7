// Patterns of a policy: texts in which each * stands for any characters, or none. Pure functions.
#ifndef NORMD_SERVER_SECURITY_PATTERN_H_
#define NORMD_SERVER_SECURITY_PATTERN_H_

#include <string>
#include <string_view>
#include <vector>

namespace normd {

// Whether all of `text` matches `pattern`. Takes time in proportion to the product of their lengths at most.
enum class Case : bool { kMatters, kIgnored };  // of ASCII letters
bool MatchesPattern(std::string_view pattern, std::string_view text, Case letters = Case::kMatters);

// Whether one of `patterns` matches.
bool MatchesAny(const std::vector<std::string>& patterns, std::string_view text, Case letters = Case::kMatters);

}  // namespace normd

#endif  // NORMD_SERVER_SECURITY_PATTERN_H_
