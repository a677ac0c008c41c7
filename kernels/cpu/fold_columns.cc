// The numbers of columns and channels for the quick look to the nearest value, and the bounds of its error.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/fold_columns.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/certificate.h"
#include "kernels/cpu/folded_pairs.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
using cpu::ColumnsToFold;
using cpu::FoldedArrays;
using cpu::PairBound;
using cpu::PairLimits;
using cpu::PairScales;

// The middles of subnormal values lie elsewhere than the quick look expects, and |y| is nearer to one than this.
constexpr double kLeastDistance = 0x1p-150;

HWY_INLINE bool IsFinite(double value) { return value - value == 0; }

// True if f and g, and what they make of an element, are in the range of Real with all their digits.
template <typename Real>
HWY_INLINE bool Folds(double f, double g) {
  constexpr double kMost = std::is_same_v<Real, float> ? 0x1p+100 : 0x1p+800;
  constexpr double kLeast = std::is_same_v<Real, float> ? 0x1p-100 : 0;
  return std::abs(f) <= kMost && std::abs(g) <= kMost && (std::abs(f) >= kLeast || f == 0);
}

// A column of a fold: y = x * f + g.
struct Fold {
  NormalisedBound bound;
  double w, b, f, of_mean, g;

  HWY_INLINE Fold(const ColumnsToFold& columns, int64_t c)
      : bound{columns.beta == nullptr ? 0 : columns.beta[c], columns.kappa[c]},
        w(columns.weight == nullptr ? 1 : columns.weight[c]),
        b(columns.bias == nullptr ? -0.0 : columns.bias[c]),
        f(columns.inverse[c] * w),
        of_mean(columns.mean == nullptr ? 0 : columns.mean[c] * f),
        g(b - of_mean) {}

  HWY_INLINE ElementBound Bound() const { return BoundOfFolded(bound, of_mean, w, b); }
};

// Sets the bounds of ApplyNearest.
HWY_INLINE void SetCareful(const ColumnsToFold& columns, const Fold& fold, int64_t c, const FoldedArrays& to) {
  const double factor = columns.bound_factor;
  const ElementBound careful = BoundOfElements(fold.bound, fold.w, fold.b);
  // Where w is 0 and no b is added, y has the sign of n, which an element near the mean may not show.
  const bool keeps_sign = columns.mean != nullptr && fold.w == 0 && fold.b == 0 && std::signbit(fold.b);
  // Statistics that are not finite leave nothing undecided, see GroupBound.
  const bool is_finite = IsFinite(columns.mean == nullptr ? 0 : columns.mean[c]) && IsFinite(columns.inverse[c]);
  to.fixed[c] = is_finite ? careful.fixed * factor + (keeps_sign ? 0x1p-1000 : 0) : -1;
  to.relative[c] = is_finite ? careful.relative * factor : 0;
}

void FoldNumbers(const ColumnsToFold& columns, const FoldedArrays& to) {
  const int64_t n = columns.count;
  double* HWY_RESTRICT numbers = to.numbers;
  for (int64_t c = 0; c < n; ++c) {
    const Fold fold(columns, c);
    const ElementBound quick = fold.Bound();
    const bool folds = Folds<double>(fold.f, fold.g) && fold.bound.decides();
    const double fixed = quick.fixed * columns.bound_factor + kLeastDistance;
    numbers[c] = folds ? fold.f : 0;
    numbers[c + n] = folds ? fold.g : 0;
    numbers[c + 2 * n] = folds ? fixed : std::numeric_limits<double>::infinity();
    numbers[c + 3 * n] = quick.relative * columns.bound_factor;
    SetCareful(columns, fold, c, to);
  }
}

PairLimits FoldPairs(const ColumnsToFold& columns, const FoldedArrays& to) {
  const int64_t n = columns.count;
  float* HWY_RESTRICT pairs = to.pairs;
  PairScales scales;
  for (int64_t c = 0; c < n; ++c) {
    scales.Add(columns.weight == nullptr ? 1 : columns.weight[c], columns.bias == nullptr ? 0 : columns.bias[c]);
  }
  PairBound bound(scales, columns.dtype, columns.bound_factor);
  for (int64_t c = 0; c < n; ++c) {
    const Fold fold(columns, c);
    const bool folds = Folds<float>(fold.f, fold.g) && fold.bound.decides() && bound.Add(fold.Bound(), fold.g);
    const double f = folds ? fold.f : 0;
    const double g = folds ? fold.g : std::numeric_limits<double>::quiet_NaN();
    pairs[c] = static_cast<float>(f);
    pairs[c + n] = static_cast<float>(g);
    pairs[c + 2 * n] = static_cast<float>(f - pairs[c]);
    pairs[c + 3 * n] = static_cast<float>(g - pairs[c + n]);
    SetCareful(columns, fold, c, to);
  }
  return bound.limits();
}

PairLimits FoldColumns(const ColumnsToFold& columns, const FoldedArrays& to) {
  if (to.pairs != nullptr) return FoldPairs(columns, to);
  FoldNumbers(columns, to);
  return {};
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normd::cpu {
HWY_EXPORT(FoldColumns);

PairLimits FoldColumns(const ColumnsToFold& columns, const FoldedArrays& to) {
  return HWY_DYNAMIC_DISPATCH(FoldColumns)(columns, to);
}
}  // namespace normd::cpu
#endif  // HWY_ONCE
