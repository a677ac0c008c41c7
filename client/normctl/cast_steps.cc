#include "client/normctl/cast_steps.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "client/cpp/half.h"
#include "client/normctl/ulps.h"

namespace normd::client {

double RoundTo(DType t, long double value) {
  const auto wide = static_cast<double>(value);
  switch (t) {
    case v1::DTYPE_F16:
      return F16ToFloat(DoubleToF16(wide));
    case v1::DTYPE_BF16:
      return Bf16ToFloat(DoubleToBf16(wide));
    case v1::DTYPE_F32:
      return static_cast<float>(wide);
    default:
      return wide;
  }
}

namespace {

// The value of T next to `value`, which is of T, on the side of `towards`.
double NextIn(DType t, double value, double towards) {
  const auto narrow = static_cast<float>(value);
  if (t == v1::DTYPE_F32) return std::nextafter(narrow, static_cast<float>(towards > value ? INFINITY : -INFINITY));
  if (t == v1::DTYPE_F64) return value;
  if (value == 0) {
    const double least = t == v1::DTYPE_F16 ? F16ToFloat(1) : Bf16ToFloat(1);
    return towards > 0 ? least : -least;
  }
  const bool grows = (towards > value) == (value > 0);
  const int step = grows ? 1 : -1;
  return t == v1::DTYPE_F16 ? F16ToFloat(static_cast<uint16_t>(DoubleToF16(value) + step))
                            : Bf16ToFloat(static_cast<uint16_t>(DoubleToBf16(value) + step));
}

// Products and sums of f64 are rounded once to f64; those of narrower values need the room of long double.
long double Product(DType t, double a, double b) {
  return t == v1::DTYPE_F64 ? a * b : static_cast<long double>(a) * b;
}
long double Sum(DType t, double a, double b) { return t == v1::DTYPE_F64 ? a + b : static_cast<long double>(a) + b; }

// The last step of element `i` from `first`, the rounded value, not rounded itself.
double LastStep(DType t, double first, const AffineStep& affine, size_t i) {
  const long double product = affine.weight.empty() ? first : Product(t, first, affine.weight[i]);
  if (affine.bias.empty()) return static_cast<double>(product);
  return static_cast<double>(Sum(t, affine.weight.empty() ? first : RoundTo(t, product), affine.bias[i]));
}

}  // namespace

StepReference ReferenceOfSteps(DType t, absl::Span<const double> normalised, const AffineStep& affine, DType judged,
                               absl::Span<const double> candidate, double floor) {
  StepReference out;
  if (affine.weight.empty() && affine.bias.empty()) {
    out.exact.assign(normalised.begin(), normalised.end());
    return out;
  }
  for (size_t i = 0; i < normalised.size(); ++i) {
    const double nearest = RoundTo(t, normalised[i]);
    double exact = LastStep(t, nearest, affine, i), first_ulps = Ulps(t, nearest, normalised[i]);
    const double error = std::max(first_ulps, Ulps(judged, candidate[i], exact, floor));
    if (nearest != normalised[i] && std::isfinite(nearest)) {
      const double other = NextIn(t, nearest, normalised[i]);
      const double other_exact = LastStep(t, other, affine, i), other_ulps = Ulps(t, other, normalised[i]);
      if (std::max(other_ulps, Ulps(judged, candidate[i], other_exact, floor)) < error) {
        exact = other_exact;
        first_ulps = other_ulps;
      }
    }
    out.exact.push_back(exact);
    out.first_ulps.push_back(first_ulps);
  }
  return out;
}

}  // namespace normd::client
