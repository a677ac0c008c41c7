#include "tests/accuracy/sweep.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/base/strings.h"
#include "tests/kernels/cases.h"
#include "tests/support/random.h"
#include "tests/support/run_case.h"

namespace normd::accuracy {
namespace {

constexpr Layout kFirst = Layout::kChannelsFirst, kLast = Layout::kChannelsLast;

std::string Packed(DType dtype, const std::vector<double>& values) {
  std::string bytes(values.size() * static_cast<size_t>(SizeOf(dtype)), '\0');
  const oracle::Type type = OracleType(dtype);
  for (size_t i = 0; i < values.size(); ++i) {
    oracle::StoreBits(type, oracle::Encode(type, values[i]), bytes.data(), static_cast<int64_t>(i));
  }
  return bytes;
}

// One statistics group of `n` values with a deviation of 1.01 and a mean of `mean`, before rounding to the dtype.
std::vector<double> SetAt(double mean, int64_t n, Random& random) {
  std::vector<double> d(static_cast<size_t>(n));
  double sum = 0, squares = 0;
  for (double& v : d) {
    v = random.Normal();
    sum += v;
  }
  for (double& v : d) {
    v -= sum / static_cast<double>(n);
    squares += v * v;
  }
  const double factor = 1.01 / std::sqrt(squares / static_cast<double>(n));
  for (double& v : d) v = mean + v * factor;
  return d;
}

// x of `groups` groups of n values: one after the other, or side by side as columns.
std::vector<double> SetsAt(double mean, int64_t groups, int64_t n, bool columns, Random& random) {
  std::vector<double> x(static_cast<size_t>(groups * n));
  for (int64_t s = 0; s < groups; ++s) {
    const std::vector<double> group = SetAt(s % 2 == 0 ? mean : -mean, n, random);
    for (int64_t i = 0; i < n; ++i) {
      x[static_cast<size_t>(columns ? i * groups + s : s * n + i)] = group[static_cast<size_t>(i)];
    }
  }
  return x;
}

struct Geometry {
  NormSpec spec;
  cases::Dims shape;
  int64_t groups, n;
  bool columns, given = false;
};

std::vector<Geometry> Centred() {
  const auto over = [](int64_t d) { return cases::Over({d}); };
  return {
      {over(67), {3, 67}, 3, 67, false},
      {over(769), {2, 769}, 2, 769, false},
      {over(4097), {2, 4097}, 2, 4097, false},
      {over(20000), {1, 20000}, 1, 20000, false},
      {cases::Axes(Method::kLayerNorm, {0}), {300, 5}, 5, 300, true},
      {cases::Of(Method::kBatchNorm, kFirst), {1, 3, 1500}, 3, 1500, false},
      {cases::Of(Method::kBatchNorm, kLast), {700, 5}, 5, 700, true},
      {cases::Of(Method::kInstanceNorm, kFirst), {2, 2, 19, 21}, 4, 399, false},
      {cases::Of(Method::kInstanceNorm, kLast), {1, 450, 3}, 3, 450, true},
      {cases::Group(2, kFirst), {2, 4, 150}, 4, 300, false},
      {cases::Group(3, kLast), {1, 450, 3}, 3, 450, true},
      {cases::Of(Method::kBatchNorm, kFirst), {1, 3, 50}, 3, 50, false, true},
      {cases::Of(Method::kBatchNorm, kLast), {50, 5}, 5, 50, true, true},
  };
}

double GreatestMean(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 100;
    case DType::kBF16:
      return 10;
    case DType::kF64:
      return 1e12;
    case DType::kF32:
      break;
  }
  return 1e6;
}

// Exponents of magnitudes: the least subnormal, the greatest that six deviations stay below.
std::pair<int, int> Exponents(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return {-24, 13};
    case DType::kF64:
      return {-1074, 1020};
    case DType::kBF16:
      return {-133, 124};
    case DType::kF32:
      break;
  }
  return {-149, 124};
}

// Elements of Normal(0, 1) times 2^exponent whose sum of squares and deviations EXACT must hold: at the very top the
// sum of x itself may leave f32, which is the point.
CaseData Scaled(const Case& c, const NormPlan& plan, int exponent, Random& random) {
  std::vector<double> x(static_cast<size_t>(plan.elements));
  for (double& v : x) v = std::ldexp(random.Normal(), exponent);
  CaseData data;
  data.x = Packed(c.dtype, x);
  return data;
}

}  // namespace

std::vector<Sample> ConditioningSweep(DType dtype) {
  std::vector<Sample> samples;
  for (double condition = 1; condition <= GreatestMean(dtype); condition *= 10) {
    for (const Geometry& g : Centred()) {
      Case c = cases::With(cases::On(g.spec, g.shape, g.given), dtype);
      Random random(Fnv1a(c.Name()) ^ static_cast<uint64_t>(condition));
      CaseData data;
      data.x = Packed(dtype, SetsAt(condition, g.groups, g.n, g.columns, random));
      for (int64_t s = 0; g.given && s < g.groups; ++s) {
        data.given_mean.push_back((s % 2 == 0 ? condition : -condition) * (1 - 1e-9));
        data.given_variance.push_back(random.Uniform(1, 2));
      }
      samples.push_back({Concat(condition, " deviations"), condition, std::move(c), std::move(data)});
    }
  }
  return samples;
}

std::vector<Sample> MagnitudeSweep(DType dtype) {
  std::vector<Sample> samples;
  const auto [low, high] = Exponents(dtype);
  const int step = std::max(1, (high - low) / 24);
  for (int exponent = low; exponent <= high; exponent += step) {
    for (const Case& base : cases::MainBases()) {
      for (const bool no_eps : {false, true}) {
        if (no_eps && base.spec.method() == Method::kPowerNorm) continue;
        Case c = cases::With(base, dtype);
        if (no_eps) c.spec.eps = 0;
        const absl::StatusOr<NormPlan> plan = PlanOf(c);
        if (!plan.ok()) return {};  // the tests expect samples
        Random random(Fnv1a(c.Name()) ^ static_cast<uint64_t>(exponent + 2000));
        CaseData data = Scaled(c, *plan, exponent, random);
        samples.push_back({Concat("magnitude 2^", exponent), std::ldexp(1, exponent), std::move(c), std::move(data)});
      }
    }
  }
  return samples;
}

}  // namespace normd::accuracy
