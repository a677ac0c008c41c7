#include "client/normctl/ulps.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace normd::client {
namespace {

// A binary floating-point format: `precision` bits with the hidden one, normal exponents from `least` to `most`.
struct Format {
  int precision, least, most;
};

Format FormatOf(DType dtype) {
  switch (dtype) {
    case v1::DTYPE_F16:
      return {11, -14, 15};
    case v1::DTYPE_BF16:
      return {8, -126, 127};
    case v1::DTYPE_F32:
      return {24, -126, 127};
    default:
      return {53, -1022, 1023};
  }
}

// long double keeps the difference of two f64 and 2^1024 in range.
long double PowerOfTwo(int exponent) { return std::ldexp(1.0L, exponent); }

bool RoundsToInfinity(const Format& format, long double magnitude) {
  return magnitude >= PowerOfTwo(format.most + 1) - PowerOfTwo(format.most - format.precision);
}

// The distance of the values of the format around `magnitude`. At a power of two that is the smaller one, if `below`.
long double UlpAt(const Format& format, long double magnitude, bool below) {
  const int exponent = magnitude == 0 ? format.least : std::clamp(std::ilogb(magnitude), format.least, format.most);
  const bool smaller = below && exponent > format.least && magnitude == PowerOfTwo(exponent);
  return PowerOfTwo(exponent - format.precision + (smaller ? 0 : 1));
}

// Keeps `worst` sorted, at most `limit` long.
void AddWorst(const UlpError& error, size_t limit, std::vector<UlpError>& worst) {
  if (error.ulps == 0 || limit == 0 || (worst.size() == limit && error.ulps <= worst.back().ulps)) return;
  const auto place = std::upper_bound(worst.begin(), worst.end(), error,
                                      [](const UlpError& a, const UlpError& b) { return a.ulps > b.ulps; });
  worst.insert(place, error);
  if (worst.size() > limit) worst.pop_back();
}

// The smallest value that is at least as large as the share `q` of the values. Reorders them.
double Percentile(double q, std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(values.size())));
  const auto at = values.begin() + static_cast<ptrdiff_t>(std::max<size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

size_t BucketOf(double ulps, double slack) {
  const auto* bucket =
      std::find_if(std::begin(kUlpBuckets), std::end(kUlpBuckets), [&](double bound) { return ulps <= bound + slack; });
  return static_cast<size_t>(bucket - std::begin(kUlpBuckets));
}

}  // namespace

double Ulps(DType dtype, double candidate, double exact, double floor) {
  constexpr double kMismatch = std::numeric_limits<double>::infinity();
  if (std::isnan(candidate) && std::isnan(exact)) return 0;
  if (candidate == exact) return 0;
  if (std::isnan(candidate) || !std::isfinite(exact)) return kMismatch;
  const Format format = FormatOf(dtype);
  const auto magnitude = std::abs(static_cast<long double>(exact));
  const bool overflows = RoundsToInfinity(format, magnitude);
  if (std::isinf(candidate)) return overflows && std::signbit(candidate) == std::signbit(exact) ? 0 : kMismatch;
  // A finite candidate for a value beyond the format is measured from the format's end.
  const long double target = overflows ? std::copysign(PowerOfTwo(format.most + 1), static_cast<long double>(exact))
                                       : static_cast<long double>(exact);
  const long double error = std::abs(static_cast<long double>(candidate) - target);
  const bool below = std::abs(static_cast<long double>(candidate)) < std::abs(target) && std::abs(target) >= floor;
  const long double scale = std::max(std::abs(target), static_cast<long double>(floor));
  return static_cast<double>(error / UlpAt(format, scale, below));
}

double ExactnessUlps(DType dtype) {
  return dtype == v1::DTYPE_F64 ? 0 : std::ldexp(4.0, FormatOf(dtype).precision - FormatOf(v1::DTYPE_F64).precision);
}

int64_t UlpReport::AtMost(double bound) const {
  int64_t count = 0;
  for (size_t i = 0; i < std::size(kUlpBuckets) && kUlpBuckets[i] <= bound; ++i) count += histogram[i];
  return count;
}

UlpReport CompareUlps(DType dtype, absl::Span<const double> candidate, absl::Span<const double> exact,
                      const UlpOptions& options) {
  UlpReport out;
  out.elements = static_cast<int64_t>(exact.size());
  out.histogram.assign(std::size(kUlpBuckets) + 1, 0);
  std::vector<double> measured;
  measured.reserve(exact.size());
  long double sum = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double least = options.least.empty() ? 0 : options.least[i];
    const double ulps = std::max(Ulps(dtype, candidate[i], exact[i], options.floor), least);
    AddWorst({static_cast<int64_t>(i), ulps}, options.worst, out.worst);
    if (std::isinf(ulps)) {
      ++out.mismatches;
      continue;
    }
    measured.push_back(ulps);
    sum += ulps;
    ++out.histogram[BucketOf(ulps, ExactnessUlps(dtype))];
    if (!std::isfinite(candidate[i]) || !std::isfinite(exact[i])) continue;
    const double absolute = std::abs(candidate[i] - exact[i]);
    out.max_absolute = std::max(out.max_absolute, absolute);
    if (exact[i] != 0) out.max_relative = std::max(out.max_relative, absolute / std::abs(exact[i]));
  }
  if (measured.empty()) return out;
  out.mean = static_cast<double>(sum / static_cast<long double>(measured.size()));
  out.p50 = Percentile(0.5, measured);
  out.p99 = Percentile(0.99, measured);
  out.p99_9 = Percentile(0.999, measured);
  out.max = *std::max_element(measured.begin(), measured.end());
  return out;
}

}  // namespace normd::client
