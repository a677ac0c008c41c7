#include "server/base/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace normd {
namespace {

constexpr size_t kLongest = 64;

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
  std::string_view nearest;
  size_t least = kLongest + 1;
  for (const std::string_view name : names) {
    const size_t distance = Distance(written, name);
    if (distance < least && distance * 3 <= name.size()) {
      least = distance;
      nearest = name;
    }
  }
  return nearest;
}

}  // namespace normd
