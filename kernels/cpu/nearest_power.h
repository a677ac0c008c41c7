// The vector kernels of PowerNorm to the nearest value: the sum of the squares of a group, the terms of the channels'
// divisors, and the elements. Each decides what its bound (PowerBound in kernels/certificate.h) lets it decide and
// reports the rest.
// In the path: run_nearest_power.cc calls them for each position, and gives what they report to the slow road.
// Ownership: pointers borrow; any alignment. Threads: no state, safe from any thread.
#ifndef NORMD_KERNELS_CPU_NEAREST_POWER_H_
#define NORMD_KERNELS_CPU_NEAREST_POWER_H_

#include <cstdint>

#include "kernels/base/types.h"
#include "kernels/certificate.h"
#include "kernels/cpu/kernels.h"
#include "kernels/pairs.h"

namespace normd::cpu {

// The kernels read arrays of a number for each channel in whole vectors: at least as many are allocated.
inline constexpr int64_t kMostPowerLanes = 8;

// The sum of the squares of n elements, off as PowerBound says. Inf or NaN if one is not finite or a square overflows.
DoublePair SumSquaresInPairs(const Elements& x, int64_t n);

// The mean square of n elements with that sum, and eps.
inline DoublePair MeanSquareOf(DoublePair sum, int64_t n, double eps) {
  return Add(Divide(sum, static_cast<double>(n)), {eps, 0});
}
// Whether the kernels take such a mean square: its quotients and roots have all their digits.
inline bool TakesMeanSquare(double square) { return square >= 0x1p-400 && square <= 0x1p+400; }

// A term of a channel's divisor that AddTerms did not add: exact, or NaN where it is undecided.
struct LeftTerm {
  int64_t row, channel;
  double term;
};

// The same channels of several positions, whose terms x^2 * `inverse` are rounded to f64 and added without rounding,
// but for terms under `least`. Every channel has two bins, which kMostTerms positions do not overflow (TermBins):
// adding to the first one rounds to its grid, and the second one takes the rests.
struct TermRows {
  static constexpr int64_t kMostRows = 16;
  static constexpr int64_t kMostTerms = 512;

  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t n = 0;                  // channels
  const void* x[kMostRows] = {};  // the first channel of each position
  DoublePair inverse[kMostRows];  // 1 / (mean square + eps) of each position, in [2^-400, 2^400]
  double slack = 0;               // PowerBound::slack(), times bound_factor
  double least = 0;               // TermBins::least
  double* high = nullptr;         // a bin for each channel, with room for kMostPowerLanes more
  double* low = nullptr;
  void (*report)(void* context, const LeftTerm& left) = nullptr;
  void* context = nullptr;
};

// The bins of the terms of a group of n channels, which are n at most.
struct TermBins {
  explicit TermBins(int64_t n);

  double anchor = 0;  // an empty first bin, 2^52 grids and a half more; the second one is 0 then
  double least = 0;   // of the terms that they take
};

void AddTerms(const TermRows& rows);

// A group of channels at adjacent positions: y = x / sqrt(mean square + eps) * factor + bias. REQUIRES: every factor is
// 0, NaN or in [2^-300, 2^300]; a channel whose factor is NaN is reported.
struct PowerRows {
  static constexpr int64_t kMostRows = 16;

  Elements x;         // `rows` times n elements, `stride` apart
  void* y = nullptr;  // likewise, of x's dtype
  int64_t rows = 0;
  int64_t n = 0;
  int64_t stride = 0;
  double eps = 0;
  // Numbers of each channel, with room for kMostPowerLanes more. An absent bias is -0.
  const double* factor = nullptr;
  const double* factor_lo = nullptr;
  const double* bias = nullptr;
  bool has_bias = true;  // false: all are -0
  // Of CAST_THEN_AFFINE, whose factors have no weights and whose biases are -0: what y is multiplied by in its type,
  // and what is added to it.
  const double* weight = nullptr;
  const double* added = nullptr;
  CastOrder cast_order = CastOrder::kAffineThenCast;
  PowerBound bound;  // times bound_factor
  void (*report)(void* context, int64_t row, int64_t channel) = nullptr;
  void* context = nullptr;
};

// Writes y of the rows that the result names, a bit for each, and reports the channels whose y is undecided, after it
// was written. Left out are rows with NaN or Inf, and those whose mean square + eps is not in [2^-400, 2^400].
uint32_t ApplyPowerRows(const PowerRows& rows);

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_NEAREST_POWER_H_
