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
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
using cpu::ColumnsToFold;
using cpu::FoldedArrays;

// The middles of subnormal values lie elsewhere than the quick look expects, and |y| is nearer to one than this.
double LeastDistance(DType dtype) {
  return dtype == DType::kF16 ? 0x1p-25 : dtype == DType::kBF16 ? 0x1p-134 : 0x1p-150;
}

HWY_INLINE bool IsFinite(double value) { return value - value == 0; }

// True if f and g, and what they make of an element, are in the range of Real with all their digits.
template <typename Real>
HWY_INLINE bool Folds(double f, double g) {
  constexpr double kMost = std::is_same_v<Real, float> ? 0x1p+100 : 0x1p+800;
  constexpr double kLeast = std::is_same_v<Real, float> ? 0x1p-100 : 0;
  return std::abs(f) <= kMost && std::abs(g) <= kMost && (std::abs(f) >= kLeast || f == 0);
}

template <typename Real>
void FoldColumnsOf(const ColumnsToFold& columns, Real* HWY_RESTRICT numbers, const FoldedArrays& to) {
  const int64_t n = columns.count;
  Real* HWY_RESTRICT offsets = numbers + n;
  Real* HWY_RESTRICT fixed = offsets + n;
  Real* HWY_RESTRICT relative = fixed + n;
  double* HWY_RESTRICT careful_fixed = to.fixed;
  double* HWY_RESTRICT careful_relative = to.relative;
  const double least = LeastDistance(columns.dtype);
  const double factor = columns.bound_factor;
  for (int64_t c = 0; c < n; ++c) {
    const NormalisedBound bound = {columns.beta == nullptr ? 0 : columns.beta[c], columns.kappa[c]};
    const double w = columns.weight == nullptr ? 1 : columns.weight[c];
    const double b = columns.bias == nullptr ? -0.0 : columns.bias[c];
    const double f = columns.inverse[c] * w;
    const double of_mean = columns.mean == nullptr ? 0 : columns.mean[c] * f;
    const double g = b - of_mean;
    const ElementBound quick =
        std::is_same_v<Real, float> ? BoundOfFoldedInF32(bound, of_mean, w, b) : BoundOfFolded(bound, of_mean, w, b);
    const bool folds = Folds<Real>(f, g) && bound.decides();
    numbers[c] = static_cast<Real>(folds ? f : 0);
    offsets[c] = static_cast<Real>(folds ? g : 0);
    fixed[c] = static_cast<Real>(folds ? quick.fixed * factor + least : std::numeric_limits<double>::infinity());
    relative[c] = static_cast<Real>(quick.relative * factor);
    const ElementBound careful = BoundOfElements(bound, w, b);
    // Where w is 0 and no b is added, y has the sign of n, which an element near the mean may not show.
    const bool keeps_sign = columns.mean != nullptr && w == 0 && b == 0 && std::signbit(b);
    // Statistics that are not finite leave nothing undecided, see GroupBound.
    const bool is_finite = IsFinite(columns.mean == nullptr ? 0 : columns.mean[c]) && IsFinite(columns.inverse[c]);
    careful_fixed[c] = is_finite ? careful.fixed * factor + (keeps_sign ? 0x1p-1000 : 0) : -1;
    careful_relative[c] = is_finite ? careful.relative * factor : 0;
  }
}

void FoldColumns(const ColumnsToFold& columns, const FoldedArrays& to) {
  to.numbers32 == nullptr ? FoldColumnsOf(columns, to.numbers, to) : FoldColumnsOf(columns, to.numbers32, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normd::cpu {
HWY_EXPORT(FoldColumns);

void FoldColumns(const ColumnsToFold& columns, const FoldedArrays& to) {
  HWY_DYNAMIC_DISPATCH(FoldColumns)(columns, to);
}
}  // namespace normd::cpu
#endif  // HWY_ONCE
