#include "tests/support/boundary_rows.h"

#include <gmpxx.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>

#include "tests/support/oracle_dyadic.h"
#include "tests/support/oracle_geometry.h"
#include "tests/support/random.h"
#include "tests/support/solved_rows.h"
#include "tests/support/spec.h"

namespace normd {
namespace {

using oracle::Wide;

// ---- The weight that puts w n + b next to a middle ----

mpz_class CeilingOf(const mpz_class& a, const mpz_class& b) { return (a + b - 1) / b; }

// The least x >= 0 with low <= a x mod m <= high, by Euclid's algorithm; -1 where there is none.
// REQUIRES: 0 <= a < m, 0 <= low <= high < m.
mpz_class FirstInRange(mpz_class a, const mpz_class& m, mpz_class low, mpz_class high) {
  if (low == 0) return 0;
  if (2 * a > m) {
    a = m - a;
    std::swap(low, high);
    low = m - low;
    high = m - high;
  }
  if (a == 0) return -1;
  const mpz_class x = CeilingOf(low, a);
  if (x * a <= high) return x;
  // a x = m y + v has a v of the range where -m y mod a is in the range mod a.
  const mpz_class y = FirstInRange((a - m % a) % a, a, low % a, high % a);
  return y < 0 ? y : CeilingOf(low + m * y, a);
}

constexpr int kFractionBits = 100;  // of a fraction as a whole number

// The fraction of v in units of 2^-100.
mpz_class FractionOf(Wide v) {
  const oracle::Dyadic exact(v);
  mpz_class scaled = exact.significand();
  const int64_t shift = exact.exponent() + kFractionBits;
  if (shift >= 0) {
    scaled <<= static_cast<mp_bitcnt_t>(shift);
  } else {
    mpz_fdiv_q_2exp(scaled.get_mpz_t(), scaled.get_mpz_t(), static_cast<mp_bitcnt_t>(-shift));
  }
  mpz_fdiv_r_2exp(scaled.get_mpz_t(), scaled.get_mpz_t(), kFractionBits);
  return scaled;
}

// The least whole j >= 0 for which a j + b lies within 2^log2_reach of the middle between two whole numbers.
mpz_class FirstNearHalf(Wide a, Wide b, int log2_reach) {
  const mpz_class m = mpz_class(1) << kFractionBits, half = m / 2;
  // A little less, for what a and b have lost: they are of 113 bits.
  const mpz_class reach = (mpz_class(63) << (kFractionBits + log2_reach)) / 64;
  mpz_class low = half - reach - FractionOf(b), high = half + reach - FractionOf(b);
  if (low < 0) low += m;
  if (high < 0) high += m;
  return low > high ? mpz_class(0) : FirstInRange(FractionOf(a), m, low, high);
}

// Numbers of a type in [1, 2) as 1 + j * step.
struct Weights {
  Wide step;
  int64_t count;
};

Weights WeightsOf(oracle::Type type) {
  return {oracle::Ulp(type, 1), int64_t{1} << oracle::FormatOf(type).mantissa_bits};
}

// A weight in [1, 2) that puts w n + b within 2^log2_ulp ulp of a middle. REQUIRES: |b| < |n|, n not 0.
std::optional<Wide> WeightNextToMiddle(oracle::Type type, Wide n, Wide b, const Weights& weights, int log2_ulp) {
  // Of the binades that y passes through as w grows, the one it passes through at w = 1.5.
  const int exponent = oracle::Exponent(n * Wide(1.5) + b);
  const Wide ulp = oracle::Ulp(type, oracle::PowerOfTwo(exponent));
  const Wide sign = oracle::IsNegative(n) ? -1 : 1;
  const Wide start = (sign * oracle::PowerOfTwo(exponent) - b) / n;  // w where that binade begins
  int64_t first = 0;
  if (start > 1) first = static_cast<int64_t>((start - 1) / weights.step) + 1;
  const Wide at_first = (n * (1 + first * weights.step) + b) / ulp;
  const mpz_class j = FirstNearHalf(n * weights.step / ulp, at_first, log2_ulp);
  if (j < 0 || j + first >= weights.count) return std::nullopt;
  const Wide w = 1 + (first + static_cast<int64_t>(j.get_si())) * weights.step;
  if (oracle::Exponent(n * w + b) != exponent) return std::nullopt;
  return w;
}

// What is missing from y to the nearest middle.
Wide ToMiddle(oracle::Type type, Wide y) {
  const Wide ulp = oracle::Ulp(type, y);
  const Wide whole = static_cast<Wide>(static_cast<int64_t>(oracle::Abs(y) / ulp));
  const Wide middle = (whole + Wide(0.5)) * ulp;
  return (oracle::IsNegative(y) ? -middle : middle) - y;
}

// ---- Tensors with parameters ----

struct Form {
  Method method;
  std::vector<int64_t> shape;
  Layout layout = Layout::kUnspecified;
  int64_t num_groups = 1;
  bool masked = false, given = false;
};

constexpr int64_t kParameters = 120;
// The elements of a channel that has its own in one piece: more than a vector kernel looks at in one step, so that the
// one next to a middle has steps without any beside it.
constexpr int64_t kRun = 70;

// Several elements to a parameter, because not every element has a weight that is near enough. The two layouts of
// BatchNorm are the two patterns of kernels.
const Form kForms[] = {{Method::kLayerNorm, {4, kParameters}},
                       {Method::kRmsNorm, {4, kParameters}},
                       {Method::kBatchNorm, {1, kParameters, kRun}, Layout::kChannelsFirst},
                       {Method::kBatchNorm, {35, kParameters}, Layout::kChannelsLast}};
// Those whose groups, masks, tails or second divisor are of another kind. PowerNorm's v is given.
const Form kOtherForms[] = {{Method::kGroupNorm, {1, kParameters, kRun}, Layout::kChannelsFirst, 8},
                            {Method::kGroupNorm, {3, 7, kParameters}, Layout::kChannelsLast, 8},
                            {Method::kInstanceNorm, {1, kParameters, kRun}, Layout::kChannelsFirst},
                            {Method::kInstanceNorm, {2, 11, kParameters}, Layout::kChannelsLast},
                            {Method::kBatchNorm, {4, kParameters, 7}, Layout::kChannelsFirst, 1, true},
                            {Method::kBatchNorm, {32, kParameters}, Layout::kChannelsLast, 1, true},
                            {Method::kPRmsNorm, {8, kParameters}},
                            {Method::kPowerNorm, {10, kParameters}, Layout::kUnspecified, 2, false, true}};

Case CaseOf(const Form& form, DType dtype) {
  Case c;
  c.spec = SpecOf(form.method, form.layout);
  if (form.method == Method::kLpNorm) c.spec.attributes = LpNormSpec{.order = 3};
  if (form.method == Method::kLayerNorm) SetNormalizedShape(&c.spec, {form.shape.back()});
  if (form.method == Method::kBatchNorm) c.options.mode = Mode::kTraining;
  if (form.method == Method::kPRmsNorm) std::get<PRmsNormSpec>(c.spec.attributes).p = 0.5;
  SetNumGroups(&c.spec, form.num_groups);
  c.options.given_statistics = form.given;
  if (form.masked) c.mask = Mask::kSome;
  c.shape = form.shape;
  c.dtype = dtype;
  return c;
}

std::string PackWide(DType dtype, const std::vector<Wide>& values) {
  const oracle::Type type = OracleType(dtype);
  std::string bytes(values.size() * static_cast<size_t>(SizeOf(dtype)), '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    oracle::StoreBits(type, oracle::Encode(type, values[i]), bytes.data(), static_cast<int64_t>(i));
  }
  return bytes;
}

struct Parameters {
  bool weight, bias;
  DType dtype;
};

// A weight and a bias that put n next to a middle.
struct Pair {
  Wide w = 1, b = 0;
};

// Of f32 and f64: w by Euclid's algorithm for any b, or else b itself. There may be none.
std::optional<Pair> ChoosePair(oracle::Type type, Wide n, const Parameters& p, int log2_ulp, Random& random) {
  const oracle::Type of_parameters = OracleType(p.dtype);
  if (!p.weight) return Pair{.b = oracle::Round(of_parameters, ToMiddle(type, n))};
  for (int tries = 0; tries < (p.bias ? 4 : 1); ++tries) {
    const Wide b = p.bias ? oracle::Round(of_parameters, n * Wide(random.Uniform(-0.5, 0.5))) : Wide(0);
    const std::optional<Wide> w = WeightNextToMiddle(type, n, b, WeightsOf(of_parameters), log2_ulp);
    if (w.has_value()) return Pair{*w, b};
  }
  return std::nullopt;
}

// Of 16 bits: any w, with the b that takes w n nearest to a middle.
std::optional<Pair> ChooseShortPair(oracle::Type type, Wide n, int log2_ulp) {
  const Weights weights = WeightsOf(type);
  for (int64_t j = 0; j < weights.count; ++j) {
    const Wide w = 1 + j * weights.step, y = n * w, missing = ToMiddle(type, y), b = oracle::Round(type, missing);
    if (oracle::Abs(missing - b) <= oracle::PowerOfTwo(log2_ulp) * oracle::Ulp(type, y)) return Pair{w, b};
  }
  return std::nullopt;
}

BoundaryRow WithParameters(const Form& form, DType dtype, const Parameters& p, uint64_t seed) {
  BoundaryRow row;
  row.c = CaseOf(form, dtype);
  const bool is_short = SizeOf(p.dtype) == 2;
  row.log2_ulp = dtype == DType::kF64 ? -40 : is_short ? -20 : -24;
  Random random(seed ^ Fnv1a(row.c.Name()) ^ static_cast<uint64_t>(p.weight) << 1 ^ static_cast<uint64_t>(p.bias));
  std::vector<Wide> x;
  int64_t elements = 1;
  for (const int64_t extent : form.shape) elements *= extent;
  const oracle::Type type = OracleType(dtype);
  for (int64_t i = 0; i < elements; ++i) x.push_back(oracle::Round(type, 0.3 + random.Normal()));
  row.data.x = PackWide(dtype, x);
  if (form.masked) {
    for (int64_t i = 0; i < elements / kParameters; ++i) row.data.mask.push_back(random.Below(3) > 0 ? 1 : 0);
    row.data.mask[0] = 1;
  }
  for (int i = 0; i < (form.given ? kParameters : 0); ++i) row.data.given_variance.push_back(random.Uniform(0.5, 2));
  const oracle::Spec spec = OracleSpec(row.c);
  const oracle::Input input = OracleInput(row.c, row.data);
  const std::vector<Wide> n = oracle::Compute(spec, input).y;
  const oracle::Geometry geometry(spec, input);
  // Every parameter serves one element: the first of those it applies to for which there is a choice.
  std::vector<Wide> w, b;
  for (int i = 0; i < kParameters; ++i) w.push_back(oracle::Round(OracleType(p.dtype), random.Uniform(1, 2)));
  b.assign(kParameters, Wide(0));
  std::vector<bool> done(kParameters);
  for (size_t i = 0; i < n.size(); ++i) {
    const auto at = static_cast<size_t>(geometry.ParameterOf(geometry.IndexOf(static_cast<int64_t>(i))));
    if (done[at] || oracle::Abs(n[i]) < oracle::PowerOfTwo(-6)) continue;
    const std::optional<Pair> pair =
        is_short ? ChooseShortPair(type, n[i], row.log2_ulp) : ChoosePair(type, n[i], p, row.log2_ulp, random);
    if (!pair.has_value()) continue;
    done[at] = true;
    w[at] = pair->w;
    b[at] = pair->b;
  }
  if (p.weight) {
    row.c.weight = p.dtype;
    row.data.weight = PackWide(p.dtype, w);
  }
  if (p.bias) {
    row.c.bias = p.dtype;
    row.data.bias = PackWide(p.dtype, b);
  }
  return row;
}

// ---- Rows without parameters ----

constexpr int64_t kShortRow = 16, kShortRows = 100;
using ShortRow = std::vector<double>;

// The least distance of a normalised value of the row to a middle, in ulp, as f64 sees it: to about 2^-26 ulp of f32.
double LeastDistance(const ShortRow& x, double mean, double inverse, int mantissa_bits) {
  const int below = 52 - mantissa_bits;  // the bits of an f64 that the type does not have; in a middle the first is set
  const int64_t half = int64_t{1} << (below - 1);
  int64_t least = half;
  for (const double v : x) {
    const double n = std::abs(v - mean) * inverse;
    const auto fraction = static_cast<int64_t>(std::bit_cast<uint64_t>(n) & ((uint64_t{1} << below) - 1));
    // Small values are left out: f16 has fewer bits below 2^-14, and the mean leaves f64 fewer.
    if (n >= 0x1p-6) least = std::min(least, std::abs(fraction - half));
  }
  return static_cast<double>(least) / static_cast<double>(2 * half);
}

double DrawValue(DType dtype, Random& random) {
  const double v = 0.3 + random.Uniform(-2, 2);
  return dtype == DType::kF32 ? static_cast<float>(v) : static_cast<double>(oracle::Round(OracleType(dtype), v));
}

double TermOf(RowDivisor by, double v) { return by == RowDivisor::kCubes ? std::abs(v * v * v) : v * v; }

// 1 / D of `length` elements from their sum and the sum of their terms.
double InverseOf(RowDivisor by, double length, double sum, double terms) {
  if (by == RowDivisor::kCubes) return 1 / std::cbrt(terms);
  if (by == RowDivisor::kMeanSquare) return 1 / std::sqrt(terms / length + 1e-6);
  const double mean = sum / length;
  return 1 / std::sqrt(terms / length - mean * mean + 1e-5);
}

// A random row, changed in one element after another until one of its values is within `reach` ulp of a middle.
ShortRow FindShortRow(DType dtype, RowDivisor by, int64_t length, double reach, Random& random) {
  constexpr int kDraws = 64;
  const int bits = oracle::FormatOf(OracleType(dtype)).mantissa_bits;
  const auto n = static_cast<double>(length);
  ShortRow x;
  for (int64_t i = 0; i < length; ++i) x.push_back(DrawValue(dtype, random));
  while (true) {
    double& changed = x[static_cast<size_t>(random.Below(length))];
    changed = 0;
    double sum = 0, terms = 0;
    for (const double v : x) {
      sum += v;
      terms += TermOf(by, v);
    }
    for (int draw = 0; draw < kDraws; ++draw) {
      changed = DrawValue(dtype, random);
      const double mean = by == RowDivisor::kDeviation ? (sum + changed) / n : 0;
      const double inverse = InverseOf(by, n, sum + changed, terms + TermOf(by, changed));
      if (LeastDistance(x, mean, inverse, bits) <= reach) return x;
    }
  }
}

// Rows of `length` elements, which are found or, where f64 has no wider arithmetic to find them with, solved.
std::vector<Wide> ShortRows(DType dtype, RowDivisor by, int64_t length, int log2_ulp, Random& random) {
  std::vector<Wide> x;
  for (int64_t r = 0; r < kShortRows; ++r) {
    if (dtype == DType::kF64) {
      const std::vector<Wide> solved = SolveRow(by, random);
      x.insert(x.end(), solved.begin(), solved.end());
      continue;
    }
    const ShortRow found = FindShortRow(dtype, by, length, std::ldexp(0.75, log2_ulp), random);
    x.insert(x.end(), found.begin(), found.end());
  }
  return x;
}

// LayerNorm, RMSNorm and LpNorm of short rows; BatchNorm of the same rows as columns, InstanceNorm and GroupNorm of the
// rows as channels. Longer rows of RMSNorm, too, which fill the vectors of 16-bit types.
void AddWithoutParameters(DType dtype, uint64_t seed, std::vector<BoundaryRow>& rows) {
  const int log2_ulp = dtype == DType::kF64 ? -48 : dtype == DType::kF32 ? -24 : -20;
  const auto add = [&](const Form& form, const std::vector<Wide>& x) {
    rows.push_back({.c = CaseOf(form, dtype), .data = {}, .log2_ulp = log2_ulp});
    rows.back().data.x = PackWide(dtype, x);
  };
  const auto rows_of = [&](Method method, RowDivisor by, int64_t length) {
    const Form form = {method, {kShortRows, length}};
    Random random(seed ^ Fnv1a(CaseOf(form, dtype).Name()));
    std::vector<Wide> x = ShortRows(dtype, by, length, log2_ulp, random);
    add(form, x);
    return x;
  };
  const std::vector<Wide> centred = rows_of(Method::kLayerNorm, RowDivisor::kDeviation, kShortRow);
  std::vector<Wide> columns(centred.size());
  for (int64_t i = 0; i < kShortRows * kShortRow; ++i) {
    columns[static_cast<size_t>(i % kShortRow * kShortRows + i / kShortRow)] = centred[static_cast<size_t>(i)];
  }
  add({Method::kBatchNorm, {kShortRow, kShortRows}, Layout::kChannelsLast}, columns);
  add({Method::kInstanceNorm, {2, kShortRows / 2, kShortRow}, Layout::kChannelsFirst}, centred);
  add({Method::kGroupNorm, {10, kShortRows / 5, kShortRow / 2}, Layout::kChannelsFirst, 10}, centred);
  rows_of(Method::kRmsNorm, RowDivisor::kMeanSquare, kShortRow);
  if (SizeOf(dtype) == 2) rows_of(Method::kRmsNorm, RowDivisor::kMeanSquare, 4 * kShortRow);
  rows_of(Method::kLpNorm, RowDivisor::kCubes, kShortRow);
}

}  // namespace

std::vector<BoundaryRow> BoundaryRows(uint64_t seed) {
  std::vector<BoundaryRow> rows;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
    const DType of_parameters = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
    for (const Form& form : kForms) {
      for (const auto& [weight, bias] : {std::pair(true, false), std::pair(false, true), std::pair(true, true)}) {
        rows.push_back(WithParameters(form, dtype, {weight, bias, of_parameters}, seed));
      }
      if (SizeOf(dtype) == 2) rows.push_back(WithParameters(form, dtype, {true, true, dtype}, seed));
    }
    for (const Form& form : kOtherForms) {
      for (const bool weight : {false, true}) {
        rows.push_back(WithParameters(form, dtype, {weight, true, of_parameters}, seed));
      }
    }
    AddWithoutParameters(dtype, seed, rows);
  }
  return rows;
}

}  // namespace normd
