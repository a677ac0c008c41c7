#include "proto/text/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"

namespace normd {
namespace {

constexpr size_t kLongest = 64;

// The letters that are compared: "layernorm" for LayerNorm, layer-norm and layer_norm.
std::string Letters(std::string_view name) {
  return absl::AsciiStrToLower(absl::StrReplaceAll(std::string(name), {{"-", ""}, {"_", ""}}));
}

// The Levenshtein distance, computed row by row.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view NearestName(std::string_view written, absl::Span<const std::string_view> names) {
  if (written.size() > kLongest) return "";
  const std::string letters = Letters(written);
  std::string_view nearest;
  size_t least = kLongest + 1;
  for (const std::string_view name : names) {
    const std::string of_name = Letters(name);
    const size_t distance = Distance(letters, of_name);
    if (distance < least && distance * 3 <= of_name.size()) {
      least = distance;
      nearest = name;
    }
  }
  return nearest;
}

}  // namespace normd
