// EXACT beside the slow road: how many of very many elements differ. The oracle judges 19 million elements and takes
// microseconds for each; the slow road (kernels/slow_road), which tests hold to the oracle, decides one in a tenth of
// one, and needs to decide only those that are anywhere near a middle: errors of one element in 10^9 are in reach.
#ifndef NORMD_TESTS_ACCURACY_BESIDE_SLOW_ROAD_H_
#define NORMD_TESTS_ACCURACY_BESIDE_SLOW_ROAD_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/case.h"

namespace normd::accuracy {

struct Form {
  std::string title;
  Case c;
};
// A form of every method and arithmetic that has kernels of its own, in each dtype; of hundreds of thousands of
// elements.
std::vector<Form> FormsBesideSlowRoad();

struct Differences {
  int64_t of = 0;         // elements of y and h
  int64_t different = 0;  // whose bytes differ
  int64_t undecided = 0;  // of y, which the kernels left to the slow road, too
};
// NearestOptions::bound_factor of the kernels, and of what they are compared with: of infinity, the slow road decides
// every element, and of `kWide` those that lie as many times farther from a middle than a bound reaches.
struct BoundFactors {
  static constexpr double kWide = 0x1p+12;
  static constexpr double kWideOfF64 = 0x1p+40;  // whose bounds are a 2^-40th of an ulp

  double of_kernels = 1, of_slow_road = std::numeric_limits<double>::infinity();
};
// Runs the case with new data until at least `elements` have been compared. Exits on a case that does not run.
Differences BesideSlowRoad(const Case& c, int64_t elements, const BoundFactors& factors);

}  // namespace normd::accuracy

#endif  // NORMD_TESTS_ACCURACY_BESIDE_SLOW_ROAD_H_
