// The f64 bins in which a block of elements is summed without rounding: the grids of its bins, and whether they serve
// the exponents of its elements. A wrong condition here loses the last bits of few blocks, and silently:
// tests/kernels/exact_sums_kernels_test.cc has a block at each border.
// In the path: kernels/cpu/exact_sums.cc, once for each block. Plain values and pure functions.
#ifndef NORMD_KERNELS_CPU_EXACT_SUMS_BINS_H_
#define NORMD_KERNELS_CPU_EXACT_SUMS_BINS_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace normd {

// The blocks. More elements make the range of exponents of the fast loop smaller, by one for a factor of 2, and fewer
// have the bins emptied more often.
inline constexpr int kLogRowBlock = 10, kLogColumnBlock = 9;
inline constexpr int64_t kRowBlock = int64_t{1} << kLogRowBlock, kColumnPositions = int64_t{1} << kLogColumnBlock;

// The bins of a block of 2^log_terms elements under 2^top. Adding an anchor of 1.5 * 2^(grid + 52) and subtracting it
// again rounds to multiples of 2^grid, and sums of these are exact up to 2^(grid + 53). The bin of squares has its
// anchor in it from the start: a sum of squares, which is not negative, stays between 2^(grid + 52) and twice that, and
// so adding one rounds it to the grid.
struct ExactBins {
  enum class Kind : uint8_t { kPlain, kNear, kSpread, kSingle };  // kPlain: sums in f64 are exact

  Kind kind = Kind::kNear;
  double of_squares = 0;           // what the bin of squares begins at
  double of_sum = 0, of_rest = 0;  // anchors; kSpread alone

  // The largest |x| and the least that is not 0, less 1, as bits of f32; the least is ~0 if all are 0.
  static ExactBins Of(uint32_t largest, uint32_t least_less_1, int log_terms, int digits, int grid) {
    ExactBins bins;
    const int exponent = static_cast<int>(largest >> 23);
    if (!IsFinite(largest)) {
      bins.kind = Kind::kSingle;
      return bins;
    }
    const int top = exponent - 126;
    const int least = least_less_1 == ~uint32_t{0} ? top : static_cast<int>((least_less_1 + 1) >> 23) - 127;
    const int unit = std::max(least - (digits - 1), grid);  // every x is a multiple of 2^unit
    // Near. x: sums under 2^(top + log_terms) are exact if that is at most 2^(unit + 53). x^2: the grid of the first
    // bin is as fine as its sums allow; the rests, at most half of the grid, are multiples of 2^(2 unit), and the same
    // condition makes their sums exact.
    const int squares = 2 * top + log_terms - 52;
    bins.of_squares = PowerOfTwo(squares + 52);
    if (2 * unit >= squares - 1) {
      bins.kind = Kind::kPlain;  // and kNear serves, too
      return bins;
    }
    if (unit >= top + log_terms - 53) return bins;
    // Spread. The same once more for the rests.
    const int rest = squares - 1 + log_terms - 53;
    bins.of_sum = Anchor(top + log_terms - 53);
    bins.of_rest = Anchor(rest);
    const bool fits = unit >= top + 2 * log_terms - 107 && 2 * unit >= rest - 1 + log_terms - 53;
    bins.kind = fits ? Kind::kSpread : Kind::kSingle;
    return bins;
  }
  static bool IsFinite(uint32_t bits) { return bits >> 23 != 255; }
  // The least f32 that is kSpread beside the largest. REQUIRES: kSingle of finite elements, so that it is normal.
  static float LeastOfSpread(uint32_t largest, int log_terms) {
    constexpr int kDigits = 24;
    const int top = static_cast<int>(largest >> 23) - 126;
    const int twice_unit = 2 * top + 3 * log_terms - 160;  // as in Of, where the squares are the narrower condition
    return std::ldexp(1.0f, (twice_unit + 1) / 2 + kDigits - 1);
  }
  static double PowerOfTwo(int exponent) { return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52); }
  static double Anchor(int grid) { return 1.5 * PowerOfTwo(grid + 52); }
};

// The same for a block of kRowBlock elements of f64. A square is hi + lo, and both go through three grids.
struct WideBins {
  bool fits = false;  // else the elements go one by one
  double of_sum = 0, of_squares = 0, of_rest = 0, of_second_rest = 0;

  // As ExactBins::Of, with bits of f64. REQUIRES: largest > 0.
  static WideBins Of(uint64_t largest, uint64_t least_less_1) {
    constexpr int kTerms = kLogRowBlock;
    WideBins bins;
    const int top = static_cast<int>(largest >> 52) - 1022;
    const int least = static_cast<int>((least_less_1 + 1) >> 52) - 1023;
    const int unit = least - 52;
    // In the middle of the range, lo does not underflow, and NaN and Inf are left out.
    if (top > 480 || unit < -500) return bins;
    // The rests of hi and lo are at most half of the first grid, and then half of the second one each.
    const int squares = 2 * top + kTerms - 53;
    const int rest = squares + kTerms - 53;
    const int second_rest = rest + kTerms - 53;
    bins.of_sum = ExactBins::Anchor(top + kTerms - 53);
    bins.of_squares = ExactBins::Anchor(squares);
    bins.of_rest = ExactBins::Anchor(rest);
    bins.of_second_rest = ExactBins::Anchor(second_rest);
    bins.fits = unit >= top + 2 * kTerms - 107 && 2 * unit >= second_rest + kTerms - 53;
    return bins;
  }
};

}  // namespace normd

#endif  // NORMD_KERNELS_CPU_EXACT_SUMS_BINS_H_
