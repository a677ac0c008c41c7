#include "kernels/slow_road/group.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/slow_road/quotient.h"
#include "kernels/slow_road/whole_power.h"

namespace normd::slow_road {
namespace {

// Adds the terms of a sum in pairs: 1,024 one after the other, and such sums pairwise, so that a term takes part in
// 1,024 + 53 additions at most.
class PairwiseSum {
 public:
  void Add(DoublePair term) {
    sum_ = normd::Add(sum_, term);
    if (++count_ % 1024 != 0) return;
    DoublePair folded = sum_;
    sum_ = {};
    int level = 0;
    for (int64_t chunks = count_ / 1024; chunks % 2 == 0; chunks /= 2) folded = normd::Add(At(level++), folded);
    high_[level] = folded.hi;
    low_[level] = folded.lo;
  }
  DoublePair Total() const {
    DoublePair total = sum_;
    int level = 0;
    for (int64_t chunks = count_ / 1024; chunks > 0; chunks /= 2, ++level) {
      if (chunks % 2 != 0) total = normd::Add(At(level), total);
    }
    return total;
  }

 private:
  DoublePair At(int level) const { return {high_[level], low_[level]}; }

  DoublePair sum_;
  double high_[53], low_[53];  // sums that wait; those of no bit of count_ / 1024 are not set
  int64_t count_ = 0;
};

// -1, 0 or 1.
int Sign(double value) { return value > 0 ? 1 : value < 0 ? -1 : 0; }

double WithSign(int64_t index, const Format& format, double sign) { return std::copysign(format.Value(index), sign); }

}  // namespace

double ApplyIn(const Format& format, double n, const Affine& affine) {
  if (!std::isfinite(n) || !std::isfinite(affine.weight.hi)) return n * affine.weight.hi + affine.bias;
  const Dyadic product = Dyadic(n) * (Dyadic(affine.weight.hi) + Dyadic(affine.weight.lo));
  const double scaled = RoundNumber(format, product, n * affine.weight.hi);
  if (!std::isfinite(scaled) || !std::isfinite(affine.bias)) return scaled + affine.bias;
  return RoundNumber(format, Dyadic(scaled) + Dyadic(affine.bias), scaled + affine.bias);
}

DoublePair SlowGroup::ValueOf(const Element& element) const {
  if (element.r == 0) return {element.x, 0};
  return normd::Add({element.x, 0}, TwoProduct(formula_.scale, element.r));
}

// ---- Pairs ----

DoublePair SlowGroup::PairMean() const {
  PairwiseSum sum;
  reader_([&](const Element* elements, int64_t n) {
    for (int64_t i = 0; i < n; ++i) sum.Add(ValueOf(elements[i]));
  });
  return Divide(sum.Total(), static_cast<double>(formula_.counted));
}

// D of S, or of R where the statistic is a norm.
DoublePair SlowGroup::PairDivisor(DoublePair value) const {
  const DivisorRule& rule = formula_.rule;
  if (rule.mode == EpsMode::kInsideSqrt) return Sqrt(normd::Add(value, {rule.eps, 0}));
  const DoublePair root = formula_.is_norm() ? value : Sqrt(value);
  if (rule.mode == EpsMode::kAddToRoot) return normd::Add(root, {rule.eps, 0});
  const bool is_less = root.hi < rule.eps || (root.hi == rule.eps && root.lo < 0);
  return is_less ? DoublePair{rule.eps, 0} : root;
}

// R of the statistics that are norms.
DoublePair SlowGroup::PairNorm() const {
  if (formula_.statistic == Statistic::kAbsSum && sum_ != nullptr) return sum_().sums.second;
  DoublePair largest;
  PairwiseSum sum;
  reader_([&](const Element* elements, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const DoublePair v = ValueOf(elements[i]);
      const DoublePair magnitude = v.hi < 0 ? Negate(v) : v;
      sum.Add(magnitude);
      if (magnitude.hi > largest.hi || (magnitude.hi == largest.hi && magnitude.lo > largest.lo)) largest = magnitude;
    }
  });
  if (formula_.statistic == Statistic::kAbsSum) return sum.Total();
  if (formula_.statistic == Statistic::kMaxAbs || largest.hi == 0) return largest;
  // Powers of elements that are at most 1 stay in range, and those that are lost do not matter.
  const auto p = static_cast<int>(formula_.rule.p);
  const int exponent = std::clamp(std::ilogb(largest.hi) + 1, -1000, 1000);
  const double scale = std::ldexp(1.0, -exponent);
  PairwiseSum powers;
  reader_([&](const Element* elements, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const DoublePair v = ValueOf(elements[i]);
      const double sign = v.hi < 0 ? -scale : scale;
      powers.Add(WholePower({v.hi * sign, v.lo * sign}, p));
    }
  });
  const DoublePair root = WholeRoot(powers.Total(), p);
  return {root.hi / scale, root.lo / scale};
}

// The sums of the elements as `reader_` gives them, about their mean or 0; and whether they are equal to that.
SumsAbout SlowGroup::ReadSums(PairStatistics* statistics) const {
  // A mean that is off by a few ulp of f64 is near enough to sum the squares about.
  const double about = formula_.centred() ? PairMean().hi : 0;
  PairwiseSum first, second;
  bool is_equal = true;
  reader_([&](const Element* elements, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const DoublePair v = ValueOf(elements[i]);
      statistics->has_residual = statistics->has_residual || elements[i].r != 0;
      const DoublePair d = about == 0 ? v : normd::Add(v, {-about, 0});
      is_equal = is_equal && d.hi == 0 && elements[i].r == 0;  // sums with r are rounded
      first.Add(d);
      second.Add(Multiply(d, d));
    }
  });
  statistics->is_equal = is_equal;
  return {about, {first.Total(), second.Total()}};
}

// S of the other statistics, and the mean.
DoublePair SlowGroup::PairSquares(PairStatistics* statistics) const {
  SumsAbout read;
  if (sum_ != nullptr) read = sum_();
  // Whether squares that add up to 0 are of elements that are equal, the elements tell.
  if (read.sums.second.hi == 0) read = ReadSums(statistics);
  const auto& [about, sums] = read;
  const auto count = static_cast<double>(formula_.counted);
  DoublePair squares = sums.second;
  if (formula_.centred()) {
    const DoublePair delta = Divide(sums.first, count);
    const DoublePair correction = Multiply(sums.first, delta);
    statistics->mean = normd::Add({about, 0}, delta);
    // Else the mean is no f64 that the elements lie about.
    if (!(correction.hi <= squares.hi / 2)) return {std::numeric_limits<double>::quiet_NaN(), 0};
    squares = normd::Add(squares, Negate(correction));
  }
  statistics->m2 = squares;
  if (formula_.statistic == Statistic::kSumSquares) return squares;
  const DoublePair value = Divide(squares, count);
  if (formula_.centred()) {
    const double spread = std::sqrt(value.hi);  // the deviation: the error of the mean is a part of it
    statistics->mean_error = 0x1p-91 * spread;
    statistics->own_mean_error = 0x1p-91 * spread + 0x1p-101 * (std::abs(about) + std::abs(statistics->mean.hi));
    // The elements of a stream that is kept wide are off by 2^-104 of themselves, and so of the mean.
    if (statistics->has_residual && spread > 0)
      statistics->inverse_error = 0x1p-101 * std::abs(statistics->mean.hi) / spread;
  }
  return value;
}

SlowGroup::PairStatistics SlowGroup::SumPairs() const {
  PairStatistics result;
  DoublePair value = {formula_.given_variance, 0};
  if (formula_.is_given) {
    if (formula_.centred()) result.mean = {formula_.given_mean, 0};
  } else {
    value = formula_.is_norm() ? PairNorm() : PairSquares(&result);
    if (formula_.is_norm()) result.m2 = value;
  }
  const DoublePair divisor = PairDivisor(value);
  result.inverse = Reciprocal(divisor);
  result.mean_error *= result.inverse.hi;
  // Products of numbers in these ranges have all their digits. A statistic that is given is exact however small it is.
  const bool sums_in_range = formula_.is_given || result.is_equal || (value.hi >= 0x1p-900 && value.hi <= 0x1p+960);
  const bool divisor_in_range = divisor.hi >= 0x1p-480 && divisor.hi <= 0x1p+480;
  result.usable = sums_in_range && divisor_in_range && std::abs(result.mean.hi) <= 0x1p+480;
  return result;
}

const SlowGroup::PairStatistics& SlowGroup::Pairs() {
  if (!pairs_.has_value()) pairs_ = SumPairs();
  return *pairs_;
}

// The sums are off by less than 2^-93 of the sums of their terms' magnitudes: 1,077 additions of 2^-104 each. 1/D is
// off by half of that and four roundings, or by those of WholeRoot; a centred element by the error of the mean and two
// roundings of the larger of its parts, which are those of a residual stream where there is one. Three times the sum of
// these is taken.
SlowGroup::Approximation SlowGroup::Approximate(const Element& element, const Affine& affine) {
  PairStatistics s = Pairs();
  if (affine.variance.has_value()) {
    const DoublePair own = Sqrt(normd::Add({*affine.variance, 0}, {formula_.rule.eps, 0}));
    s.usable = s.usable && own.hi >= 0x1p-240 && own.hi <= 0x1p+240;
    s.inverse = Multiply(s.inverse, Reciprocal(own));
  }
  if (!s.usable) return {{}, std::numeric_limits<double>::infinity()};
  if (!formula_.centred() && element.x == 0 && element.r == 0) return {{affine.bias, 0}, 0};
  const DoublePair value = ValueOf(element);
  const DoublePair centred = formula_.centred() ? normd::Add(value, Negate(s.mean)) : value;
  const DoublePair product = Multiply(Multiply(centred, s.inverse), affine.weight);
  const DoublePair y = normd::Add(product, {affine.bias, 0});
  const double parts = element.r == 0 ? 0 : std::abs(element.x) + std::abs(formula_.scale * element.r);
  const double about = formula_.centred() ? std::abs(value.hi) + std::abs(s.mean.hi) : 0;
  const double of_n = s.mean_error + 0x1p-101 * (parts + about) * s.inverse.hi;
  const double weight = std::abs(affine.weight.hi);
  const double relative = 0x1p-90 + s.inverse_error;
  // What is lost where an element or n is so small that its low part is no f64.
  const double lost = weight * (1 + s.inverse.hi) * 0x1p-1070 + 0x1p-1060;
  const double error = relative * std::abs(product.hi) + weight * of_n +
                       0x1p-101 * (std::abs(product.hi) + std::abs(affine.bias)) + lost;
  return {y, error};
}

std::optional<int64_t> SlowGroup::Decide(const Format& format, const Approximation& approximation) {
  const DoublePair y = approximation.y.hi < 0 ? Negate(approximation.y) : approximation.y;
  if (!(y.hi <= 0x1p+1000)) return std::nullopt;
  int64_t index = format.IndexBelow(y.hi);
  if (index >= format.Infinity()) return std::nullopt;
  if (y.lo < 0 && index > 0 && format.Value(index) == y.hi) --index;
  const double half = format.Half(index);
  if (!(approximation.error <= half / 2)) return std::nullopt;
  const double distance = (y.hi - format.Value(index)) - half + y.lo;  // exact but for the last digit of y.lo
  if (std::abs(distance) <= approximation.error) return std::nullopt;
  return distance > 0 ? index + 1 : index;
}

// ---- Exact integers ----

const ExactStatistics& SlowGroup::Exact() {
  if (!exact_.has_value()) exact_.emplace(SumExactly(formula_, reader_));
  return *exact_;
}

Divisor SlowGroup::WithVariance(double variance) {
  const Divisor& own = *Exact().divisor;
  return {own.r(), own.q() * (Dyadic(variance) + Dyadic(formula_.rule.eps)), own.k(), own.order()};
}

double SlowGroup::NearestExactly(const Format& format, const Element& element, const Affine& affine) {
  const ExactStatistics& s = Exact();
  if (!s.divisor.has_value()) return InIeee(element, affine);
  const Dyadic centred = CentredExactly(element);
  const Dyadic product = centred * (Dyadic(affine.weight.hi) + Dyadic(affine.weight.lo));
  const Dyadic bias(affine.bias);
  if (product.sign() == 0 && bias.sign() != 0) return RoundNumber(format, bias, 0);
  Rounded rounded;
  if (product.sign() != 0 && affine.variance.has_value()) {
    rounded = RoundToNearest(format, product, WithVariance(*affine.variance), bias, &rungs_.work);
  } else if (product.sign() != 0) {
    rounded = RoundToNearest(format, product, *s.divisor, bias, &rungs_.work);
  }
  if (rounded.is_tie) ++rungs_.ties;
  if (rounded.sign != 0) return WithSign(rounded.index, format, rounded.sign);
  if (bias.sign() != 0) return 0;  // w * n = -b
  const double n = centred.sign() != 0 ? centred.sign() : ZeroOf(element);
  return std::copysign(0.0, n) * std::copysign(1.0, affine.weight.hi) + affine.bias;
}

Dyadic SlowGroup::CentredExactly(const Element& element) {
  const Dyadic value = ExactValue(formula_, element);
  return formula_.centred() ? Exact().count.Value() * value - Exact().sum.Value() : value;
}

// +0 for an element that equals the mean, the sign of the element where nothing is subtracted.
double SlowGroup::ZeroOf(const Element& element) const {
  return formula_.centred() ? 0.0 : std::copysign(0.0, element.x + formula_.scale * element.r);
}

double SlowGroup::InIeee(const Element& element, const Affine& affine) {
  if (std::isnan(affine.weight.hi) || std::isnan(affine.bias)) return std::numeric_limits<double>::quiet_NaN();
  const int sign = CentredExactly(element).sign();
  double n = sign != 0 ? sign : ZeroOf(element);
  if (!Exact().divisor.has_value() && !formula_.rule.zero_norm_gives_zero) n /= 0.0;
  return n * affine.weight.hi + affine.bias;
}

std::optional<double> SlowGroup::DecideStatistic(const Format& format, DoublePair value, double error) {
  if (first_ != FirstRung::kPairs || !Pairs().usable || Pairs().has_residual) return std::nullopt;
  const std::optional<int64_t> index = Decide(format, {value, error});
  if (!index.has_value() || (*index == 0 && std::abs(value.hi) <= error)) return std::nullopt;
  return WithSign(*index, format, Sign(value.hi));
}

bool SlowGroup::HasDivisor() {
  if (formula_.rule.eps > 0 || (first_ == FirstRung::kPairs && Pairs().usable)) return true;
  return Exact().divisor.has_value();
}

double SlowGroup::NearestMean(const Format& format) {
  if (!formula_.is_given && formula_.centred()) {
    const std::optional<double> mean = DecideStatistic(format, Pairs().mean, Pairs().own_mean_error);
    if (mean.has_value()) return *mean;
  }
  return formula_.centred() ? RoundQuotient(format, Exact().sum.Value(), Exact().count.Value()) : 0;
}

double SlowGroup::NearestInverse(const Format& format) {
  const DoublePair pair = Pairs().inverse;
  const std::optional<double> inverse = DecideStatistic(format, pair, pair.hi * (0x1p-90 + Pairs().inverse_error));
  if (inverse.has_value()) return *inverse;
  const ExactStatistics& s = Exact();
  if (!s.divisor.has_value()) return std::numeric_limits<double>::infinity();
  return format.Value(RoundToNearest(format, s.count.Value(), *s.divisor, Dyadic(), &rungs_.work).index);
}

double SlowGroup::NearestM2() {
  const Format format = FormatOf(DType::kF64);
  if (!formula_.is_given) {
    if (first_ == FirstRung::kPairs && Pairs().is_equal) return 0;
    const std::optional<double> m2 = DecideStatistic(format, Pairs().m2, 0x1p-90 * Pairs().m2.hi);
    if (m2.has_value()) return *m2;
  }
  const ExactStatistics& s = Exact();
  if (formula_.statistic != Statistic::kPowerSum || s.m2.sign() == 0) {
    return RoundQuotient(format, s.m2.Value(), s.count.Value());
  }
  const Dyadic one = Dyadic::Integer(1);  // 1 / (1 / R^p)^(1 / p) is R
  const Divisor reciprocal(Dyadic(), one, s.m2.Value(), static_cast<int>(formula_.rule.p));
  return format.Value(RoundToNearest(format, one, reciprocal, Dyadic(), &rungs_.work).index);
}

double SlowGroup::Nearest(const Format& format, const Element& element, const Affine& affine) {
  if (!std::isfinite(affine.weight.hi) || !std::isfinite(affine.bias)) return InIeee(element, affine);
  if (first_ == FirstRung::kPairs) {
    ++rungs_.pairs;
    const Approximation approximation = Approximate(element, affine);
    const std::optional<int64_t> index = Decide(format, approximation);
    if (index.has_value()) {
      // A middle lies above 0, and y is farther from it than its error: the sign of y is known, unless y rounds to 0.
      if (*index > 0 || std::abs(approximation.y.hi) > approximation.error) {
        return WithSign(*index, format, Sign(approximation.y.hi));
      }
    }
  }
  ++rungs_.exact;
  return NearestExactly(format, element, affine);
}

double SlowGroup::NearestSquare(const Element& element) {
  const Format format = FormatOf(DType::kF64);
  if (element.x == 0 && element.r == 0) return 0;
  if (first_ == FirstRung::kPairs) {
    ++rungs_.pairs;
    const Approximation n = Approximate(element, {});
    const DoublePair square = Multiply(n.y, n.y);
    // Twice the error of n, relative, and that of the product.
    const double error = 2.5 * n.error * std::abs(n.y.hi) + 0x1p-100 * square.hi + 0x1p-1060;
    const std::optional<int64_t> index = Decide(format, {square, error});
    if (index.has_value()) return format.Value(*index);
  }
  ++rungs_.exact;
  const Dyadic value = ExactValue(formula_, element);
  if (value.sign() == 0) return 0;
  const Divisor& divisor = *Exact().divisor;
  return RoundQuotient(format, Square(value) * divisor.k(), divisor.q());
}

}  // namespace normd::slow_road
