// The f64 nearest to a number of which a pair and the error of the pair are known: what decides almost every rounding
// of pairs, so that integers need not.
// In the path: kernels/exact_sums/rounded_step.cc and nearest_moments.cc, and the variances of
// server/session/sample_statistics.cc. A pure function, safe from any thread.
#ifndef NORMD_KERNELS_EXACT_SUMS_NEAREST_WITHIN_H_
#define NORMD_KERNELS_EXACT_SUMS_NEAREST_WITHIN_H_

#include <cmath>
#include <optional>

#include "kernels/pairs.h"

namespace normd {

// What products and quotients of pairs lose where their low parts are no f64, and the least magnitude beside which
// that is nothing.
inline constexpr double kLost = 0x1p-1060;
inline constexpr double kLeast = 0x1p-900;

// The f64 nearest to every number within `error` of `value`; nothing if there are two, or none that is finite, or one
// below kLeast.
//
//   NearestWithin({1, 0x1p-60}, 0x1p-100);  // 1
//   NearestWithin({1, 0x1p-53}, 0x1p-100);  // nothing: it may be the one above
inline std::optional<double> NearestWithin(DoublePair value, double error) {
  // Twice: the two differences are rounded, too.
  const double wide = 2 * error + kLost;
  const double low = value.hi + (value.lo - wide), high = value.hi + (value.lo + wide);
  if (low != high || !std::isfinite(low) || std::abs(low) < kLeast) return std::nullopt;
  return low;
}

}  // namespace normd

#endif  // NORMD_KERNELS_EXACT_SUMS_NEAREST_WITHIN_H_
