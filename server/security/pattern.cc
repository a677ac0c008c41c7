#include "server/security/pattern.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"

namespace normd {

bool MatchesPattern(std::string_view pattern, std::string_view text, Case letters) {
  const auto same = [letters](char a, char b) {
    return a == b || (letters == Case::kIgnored && absl::ascii_tolower(static_cast<unsigned char>(a)) ==
                                                       absl::ascii_tolower(static_cast<unsigned char>(b)));
  };
  size_t p = 0, t = 0;
  // Where to go on when the characters after the latest * turn out to differ: that star takes one character more.
  size_t star = std::string_view::npos, taken = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = t;
    } else if (p < pattern.size() && same(pattern[p], text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

bool MatchesAny(const std::vector<std::string>& patterns, std::string_view text, Case letters) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [text, letters](const std::string& pattern) { return MatchesPattern(pattern, text, letters); });
}

}  // namespace normd
