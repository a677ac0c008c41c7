#include "client/normctl/nearest.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace normd::client {
namespace {

bool Same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// `sum` moved towards a `rest` that it lacks, if its last bit is 0: a later rounding to fewer bits then is that of the
// sum and its rest together. Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008.
double ToOdd(double sum, double rest) {
  uint64_t bits;
  std::memcpy(&bits, &sum, sizeof(bits));
  if (!std::isfinite(sum) || !std::isfinite(rest) || rest == 0 || (bits & 1) != 0) return sum;
  const double infinity = std::numeric_limits<double>::infinity();
  return std::nextafter(sum, rest > 0 ? infinity : -infinity);
}

// a * b and a + b, each rounded once to `t`.
double RoundedProduct(DType t, double a, double b) {
  const double product = a * b;
  return t == v1::DTYPE_F64 ? product : RoundTo(t, ToOdd(product, std::fma(a, b, -product)));
}

double RoundedSum(DType t, double a, double b) {
  const double sum = a + b, part = sum - a;
  return t == v1::DTYPE_F64 ? sum : RoundTo(t, ToOdd(sum, (a - (sum - part)) + (b - part)));
}

// The two values of T that an answer within 4 ulp of f64 may round to; mostly they are one.
struct Roundings {
  double low, high;

  bool IsOne() const { return Same(low, high); }
};

Roundings RoundingsOf(DType t, double exact) {
  if (t == v1::DTYPE_F64 || !std::isfinite(exact)) return {RoundTo(t, exact), RoundTo(t, exact)};
  // 4 ulp are at most 2^-50 of the value; among subnormals they are 4 times the least number.
  const double error = std::max(std::abs(exact) * 0x1p-50, 4 * std::numeric_limits<double>::denorm_min());
  return {RoundTo(t, exact - error), RoundTo(t, exact + error)};
}

void CountOne(double candidate, const Roundings& roundings, NearestCount& count) {
  if (roundings.IsOne()) {
    count.nearest += Same(candidate, roundings.low) ? 1 : 0;
  } else {
    count.undecided += Same(candidate, roundings.low) || Same(candidate, roundings.high) ? 1 : 0;
  }
}

}  // namespace

NearestCount CountNearest(DType dtype, absl::Span<const double> candidate, absl::Span<const double> exact) {
  NearestCount count;
  for (size_t i = 0; i < exact.size(); ++i) CountOne(candidate[i], RoundingsOf(dtype, exact[i]), count);
  return count;
}

NearestCount CountNearestOfSteps(DType t, absl::Span<const double> normalised, const AffineStep& affine,
                                 absl::Span<const double> candidate) {
  NearestCount count;
  for (size_t i = 0; i < normalised.size(); ++i) {
    const auto rest = [&](double n) {
      if (!affine.weight.empty()) n = RoundedProduct(t, n, affine.weight[i]);
      return affine.bias.empty() ? n : RoundedSum(t, n, affine.bias[i]);
    };
    const Roundings first = RoundingsOf(t, normalised[i]);
    CountOne(candidate[i], {rest(first.low), rest(first.high)}, count);
  }
  return count;
}

}  // namespace normd::client
