#include "client/cli/did_you_mean.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace normd::client {
namespace {

constexpr size_t kLongest = 64;

// The letters that are compared: "layernorm" for LayerNorm, layer-norm and layer_norm.
std::string Letters(absl::string_view name) {
  return absl::AsciiStrToLower(absl::StrReplaceAll(name, {{"-", ""}, {"_", ""}}));
}

// The Levenshtein distance, computed row by row.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (const char of_a : a) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (of_a == b[j] ? 0 : 1);
      diagonal = std::exchange(row[j + 1], std::min({replaced, row[j] + 1, row[j + 1] + 1}));
    }
  }
  return row.back();
}

}  // namespace

std::string DidYouMean(absl::string_view written, absl::Span<const std::string> names) {
  const std::string letters = Letters(written.substr(0, kLongest));
  std::string nearest;
  size_t least = letters.size() + 1;
  for (const std::string& name : names) {
    const std::string of_name = Letters(name);
    const size_t distance = EditDistance(letters, of_name);
    if (distance < least && distance * 3 <= of_name.size()) {
      least = distance;
      nearest = name;
    }
  }
  return nearest.empty() ? "" : absl::StrCat(": did you mean ", nearest, "?");
}

}  // namespace normd::client
