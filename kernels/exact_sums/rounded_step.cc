#include "kernels/exact_sums/rounded_step.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>

#include "kernels/certificate.h"
#include "kernels/exact_sums/modular_sum.h"
#include "kernels/exact_sums/nearest_ratio.h"
#include "kernels/exact_sums/nearest_within.h"

namespace normd {
namespace {

using slow_road::Dyadic;

// Splits a number into two of at most 26 bits (Veltkamp). NaN beyond 2^996.
struct Halves {
  double upper, lower;
};
Halves Split(double value) {
  const double scaled = value * 0x1.0000002p+27;
  const double upper = scaled - (scaled - value);
  return {upper, value - upper};
}

}  // namespace

RoundedStep::Factor::Factor(const Dyadic& numerator, const Dyadic& denominator)
    : over(numerator), hi(NearestRatio(numerator, denominator)) {
  lo = NearestRatio(numerator - Dyadic(hi) * denominator, denominator);
  const Halves halves = Split(hi);
  upper = halves.upper;
  lower = halves.lower;
}

// The low part is then off by 2^-106 of the factor.
bool RoundedStep::Factor::fits_pairs() const { return over.sign() == 0 || hi >= kLeast; }

// Arrays, and loops without a branch, which compilers make vectors of. The products are Dekker's: without the
// instruction, std::fma is a call.
struct RoundedStep::Block {
  static constexpr size_t kMost = 64;

  size_t size = 0;
  double bound = 0;  // of the error, as a part of the magnitudes
  double old[kMost];
  double sum[kMost], rest[kMost], magnitude[kMost];  // of the instances
  double low[kMost], high[kMost], wide[kMost];       // the new value lies between the first two

  void Read(absl::Span<const Moment> moments, double Moment::*member, size_t channels) {
    for (size_t i = 0; i < size; ++i) {
      sum[i] = moments[i].*member;
      rest[i] = 0;
      magnitude[i] = std::abs(sum[i]);
    }
    for (size_t first = channels; first < moments.size(); first += channels) {
      for (size_t i = 0; i < size; ++i) {
        const double value = moments[first + i].*member;
        const DoublePair added = TwoSum(sum[i], value);
        sum[i] = added.hi;
        rest[i] += added.lo;
        magnitude[i] += std::abs(value);
      }
    }
  }
};

RoundedStep::RoundedStep(const StepWeight& weight, const Dyadic& divisor)
    : under_(weight.under * divisor),
      of_old_((weight.under - weight.over) * divisor, under_),
      of_sum_(weight.over, under_) {}

// The bound, in kPairUnit of the magnitudes: a product with its rest is off by less than 2, their sum by 1. Of n
// instances rest i is at most i 2^-53 of the magnitudes, and rounding each of them is off by n^2 / 8 altogether; what
// is done with their sum is off by less than n.
void RoundedStep::CalculateInPairs(Block* block) const {
  const auto product = [](const Factor& factor, double value, double rest, double* low) {
    const Halves halves = Split(value);
    const double high = factor.hi * value;
    const double of_upper = factor.upper * halves.upper - high;
    const double of_both = of_upper + factor.upper * halves.lower + factor.lower * halves.upper;
    *low = (of_both + factor.lower * halves.lower) + (factor.lo * value + factor.hi * rest);
    return high;
  };
  for (size_t i = 0; i < block->size; ++i) {
    double of_kept, of_added;
    const double kept = product(of_old_, block->old[i], 0, &of_kept);
    const double added = product(of_sum_, block->sum[i], block->rest[i], &of_added);
    const DoublePair sum = TwoSum(kept, added);
    const double rest = sum.lo + (of_kept + of_added);
    const double magnitude = std::abs(kept) + of_sum_.hi * block->magnitude[i];
    // Twice: the differences are rounded, too.
    const double wide = 2 * block->bound * magnitude + kLost;
    block->low[i] = sum.hi + (rest - wide);
    block->high[i] = sum.hi + (rest + wide);
    block->wide[i] = wide;
  }
}

// Halves of numbers beyond 2^996 are not finite: calculates channel i again, with all numbers smaller.
void RoundedStep::CalculateScaled(size_t i, Block* block) const {
  constexpr double kDown = 0x1p-100, kUp = 0x1p+100;
  Block scaled;
  scaled.size = 1;
  scaled.bound = block->bound;
  scaled.old[0] = block->old[i] * kDown;
  scaled.sum[0] = block->sum[i] * kDown;
  scaled.rest[0] = block->rest[i] * kDown;
  scaled.magnitude[0] = block->magnitude[i] * kDown;
  CalculateInPairs(&scaled);
  block->low[i] = scaled.low[0] * kUp;
  block->high[i] = scaled.high[0] * kUp;
  block->wide[i] = scaled.wide[0] * kUp;
}

// Of two neighbours the one that is nearer: by the sign of N - M under, where the new value is N / under and M is in
// the middle of the two. Nothing if they are no neighbours, or the numbers are too far apart for ModularSum.
std::optional<double> RoundedStep::DecideBetween(const Block& block, size_t i, absl::Span<const Moment> moments,
                                                 double Moment::*member, size_t channels) const {
  const double low = block.low[i], high = block.high[i], old = block.old[i];
  const bool are_neighbours = std::isfinite(low) && std::isfinite(high) && std::nextafter(low, high) == high;
  if (!are_neighbours || std::min(std::abs(low), std::abs(high)) < kLeast) return std::nullopt;
  const double half = (high - low) / 2;
  int64_t lowest = ModularSum::LowestWord(under_, half);
  const auto reach = [&lowest](const Dyadic& factor, double value) {
    if (value != 0 && factor.sign() != 0) lowest = std::min(lowest, ModularSum::LowestWord(factor, value));
  };
  reach(under_, low);
  reach(of_old_.over, old);
  for (size_t m = 0; m < moments.size(); m += channels) reach(of_sum_.over, moments[m].*member);
  // N / under and M are less than 3 * wide apart.
  const int64_t bits = under_.exponent() + 64 * int64_t{under_.size()} + std::ilogb(block.wide[i]) + 3;
  if (bits - 64 * lowest > ModularSum::kBits - 1) return std::nullopt;
  ModularSum sum(lowest);
  sum.Add(1, of_old_.over, old);
  for (size_t m = 0; m < moments.size(); m += channels) sum.Add(1, of_sum_.over, moments[m].*member);
  sum.Add(-1, under_, low);
  sum.Add(-1, under_, half);
  const int sign = sum.Sign();
  const bool low_is_even = std::bit_cast<uint64_t>(low) % 2 == 0;
  return sign < 0 || (sign == 0 && low_is_even) ? low : high;
}

size_t RoundedStep::Apply(absl::Span<const Moment> moments, double Moment::*member,
                          std::vector<double>* running) const {
  const size_t channels = running->size();
  const bool fits_pairs = of_old_.fits_pairs() && of_sum_.fits_pairs();
  Block block;
  const size_t instances = moments.size() / channels;
  const auto n = static_cast<double>(instances);
  block.bound = (8 + n * (2 + n / 4)) * kPairUnit;
  size_t in_general = 0;
  for (size_t begin = 0; begin < channels; begin += Block::kMost) {
    double* const values = running->data() + begin;
    block.size = std::min(Block::kMost, channels - begin);
    std::copy_n(values, block.size, block.old);
    block.Read(moments.subspan(begin), member, channels);
    CalculateInPairs(&block);
    for (size_t i = 0; i < block.size; ++i) {
      if (fits_pairs && std::isnan(block.low[i])) CalculateScaled(i, &block);
      const double low = block.low[i];
      const bool is_decided = fits_pairs && low == block.high[i] && std::abs(low) >= kLeast && std::isfinite(low);
      if (is_decided) {
        values[i] = low;
        continue;
      }
      const absl::Span<const Moment> of_channel = moments.subspan(begin + i);
      const auto between = fits_pairs ? DecideBetween(block, i, of_channel, member, channels) : std::optional<double>();
      in_general += between.has_value() ? 0 : 1;
      values[i] = between.has_value() ? *between : Decide(block.old[i], of_channel, member, channels);
    }
  }
  return in_general;
}

double RoundedStep::Decide(double old, absl::Span<const Moment> moments, double Moment::*member,
                           size_t channels) const {
  bool is_finite = std::isfinite(old), is_zero = old == 0;
  double in_f64 = 0;
  for (size_t i = 0; i < moments.size(); i += channels) {
    const double value = moments[i].*member;
    is_finite = is_finite && std::isfinite(value);
    is_zero = is_zero && value == 0;
    in_f64 += value;
  }
  if (is_zero) return 0;
  // A factor above 0 that is no f64 leaves an infinity what it is.
  const auto weighed = [](const Factor& factor, double value) {
    return std::isinf(value) && factor.over.sign() != 0 ? value : factor.hi * value;
  };
  if (!is_finite) return weighed(of_old_, old) + weighed(of_sum_, in_f64);
  Dyadic sum;
  for (size_t i = 0; i < moments.size(); i += channels) sum = sum + Dyadic(moments[i].*member);
  return NearestRatio(of_old_.over * Dyadic(old) + of_sum_.over * sum, under_);
}

namespace {

bool IsFinite(const Moment& moment) {
  return moment.count > 0 && std::isfinite(moment.count) && std::isfinite(moment.mean) && std::isfinite(moment.m2);
}

// The sums of parts that are all finite and of at least one element.
Moment PoolExactly(absl::Span<const Moment> parts) {
  Dyadic count, sum, squares;
  for (const Moment& part : parts) {
    if (part.count == 0) continue;
    const Dyadic mean(part.mean);
    const Dyadic part_sum = Dyadic(part.count) * mean;
    count = count + Dyadic(part.count);
    sum = sum + part_sum;
    squares = squares + part_sum * mean + Dyadic(part.m2);
  }
  return {.count = NearestRatio(count, Dyadic::Integer(1)),
          .mean = NearestRatio(sum, count),
          .m2 = NearestRatio(squares * count - Square(sum), count)};
}

// What a product loses at most where its low part is no f64. Counts multiply that, and so do reciprocals of small
// counts: then it is more than kLost.
constexpr double kLostByProduct = 0x1p-1071;

// The same in pairs of f64, where these decide. m2 is the sum of the parts' and of n_i (mean_i - mean)^2, whose terms
// are positive; an error e of the mean adds (sum of n_i) e^2 to it.
class PairPool {
 public:
  explicit PairPool(absl::Span<const Moment> parts) : parts_(parts) {
    bool is_first = true;
    for (const Moment& part : parts_) {
      if (part.count == 0) continue;
      count_ = Add(count_, {part.count, 0});
      const DoublePair product = TwoProduct(part.count, part.mean);
      sum_ = Add(sum_, product);
      magnitude_ += std::abs(product.hi);
      has_one_mean_ = has_one_mean_ && (is_first || mean_.hi == part.mean);
      mean_.hi = part.mean;
      is_first = false;
    }
    if (has_one_mean_) return;
    const DoublePair share = Reciprocal(count_);
    mean_ = Multiply(sum_, share);
    // The additions to the sum, those to the count, the reciprocal and the product.
    of_mean_ = (2 * Size() + 10) * (magnitude_ * kPairUnit + kLostByProduct) * share.hi + kLost;
  }

  // 1 / count is a pair whose low part is no subnormal number.
  bool fits_pairs() const { return count_.hi >= 0x1p-200 && count_.hi <= 0x1p+200; }
  std::optional<double> Count() const { return NearestWithin(count_, (Size() + 1) * count_.hi * kPairUnit); }
  std::optional<double> Mean() const {
    if (has_one_mean_) return mean_.hi + 0.0;
    return NearestWithin(mean_, of_mean_);
  }
  std::optional<double> M2() const {
    DoublePair m2;
    double distances = Size() * kLostByProduct;  // the sum of n_i |mean_i - mean|
    for (const Moment& part : parts_) {
      if (part.count == 0) continue;
      const DoublePair distance = Add({part.mean, 0}, Negate(mean_));
      const DoublePair between = Multiply(Multiply(distance, distance), {part.count, 0});
      m2 = Add(m2, Add({part.m2, 0}, between));
      distances += std::abs(distance.hi) * part.count;
    }
    if (m2.hi == 0 && has_one_mean_) return 0;
    // A difference is off by the error of the mean, and by 1 of both: at most 2 of the difference, and 2 of the mean.
    const double of_distance = has_one_mean_ ? 0 : of_mean_ + 2 * std::abs(mean_.hi) * kPairUnit;
    const double of_between = 2 * distances * of_distance + count_.hi * of_distance * of_distance;
    const double lost = kLostByProduct * (count_.hi + Size());
    return NearestWithin(m2, 2 * (of_between + lost) + (2 * Size() + 20) * m2.hi * kPairUnit);
  }

 private:
  double Size() const { return static_cast<double>(parts_.size()); }

  const absl::Span<const Moment> parts_;
  DoublePair count_, sum_, mean_;
  bool has_one_mean_ = true;  // that of every part
  double magnitude_ = 0, of_mean_ = 0;
};

Moment MergeInOrder(absl::Span<const Moment> parts) {
  Moment merged;
  std::vector<double> counts;
  for (const Moment& part : parts) {
    merged = Merge(merged, part);
    counts.push_back(part.count);
  }
  merged.count = NearestSum(counts);
  return merged;
}

}  // namespace

double NearestSum(absl::Span<const double> values) {
  DoublePair sum;
  double magnitude = 0;
  for (const double value : values) {
    sum = Add(sum, {value, 0});
    magnitude += std::abs(value);
  }
  if (magnitude == 0) return 0;
  if (!std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); })) {
    return std::accumulate(values.begin(), values.end(), 0.0);
  }
  const double error = static_cast<double>(values.size() + 1) * magnitude * kPairUnit;
  if (const std::optional<double> nearest = NearestWithin(sum, error); nearest.has_value()) return *nearest;
  Dyadic exact;
  for (const double value : values) exact = exact + Dyadic(value);
  return NearestRatio(exact, Dyadic::Integer(1));
}

Moment NearestPool(absl::Span<const Moment> parts) {
  const auto says_nothing = [](const Moment& part) { return part.count == 0; };
  const auto used = parts.size() - static_cast<size_t>(std::count_if(parts.begin(), parts.end(), says_nothing));
  const auto fits = [&](const Moment& part) { return says_nothing(part) || IsFinite(part); };
  if (used <= 1 || !std::all_of(parts.begin(), parts.end(), fits)) return MergeInOrder(parts);
  const PairPool pool(parts);
  if (!pool.fits_pairs()) return PoolExactly(parts);
  const std::optional<double> count = pool.Count(), mean = pool.Mean(), m2 = pool.M2();
  if (count.has_value() && mean.has_value() && m2.has_value()) return {*count, *mean, *m2};
  return PoolExactly(parts);
}

}  // namespace normd
