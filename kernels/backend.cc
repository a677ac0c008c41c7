#include "kernels/backend.h"

#include <algorithm>

namespace normd {

CountedPositions CountPositions(const NormPlan& plan, const uint8_t* mask) {
  if (mask == nullptr) return {.counted = plan.SetSize()};
  // Masks exist only where channels are kept, so that a position is one element of each group.
  const int64_t positions = plan.reduce0 * plan.reduce1;
  const uint8_t* const end = mask + positions;
  const uint8_t* const first = std::find_if(mask, end, [](uint8_t m) { return m != 0; });
  return {.counted = positions - std::count(mask, end, 0), .first = first == end ? 0 : first - mask};
}

}  // namespace normd
