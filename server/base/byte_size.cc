#include "server/base/byte_size.h"

#include <limits>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"

namespace normd {

std::optional<int64_t> ParseBytes(std::string_view text) {
  constexpr std::pair<std::string_view, int> kUnits[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
  int64_t unit = 1;
  for (const auto& [suffix, shift] : kUnits) {
    if (text.ends_with(suffix)) {
      unit = int64_t{1} << shift;
      text.remove_suffix(suffix.size());
      break;
    }
  }
  int64_t value = 0;
  if (!absl::SimpleAtoi(std::string(text), &value)) return std::nullopt;
  if (value > std::numeric_limits<int64_t>::max() / unit || value < 0) return std::nullopt;
  return value * unit;
}

}  // namespace normd
