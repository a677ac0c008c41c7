#include "kernels/slow_road/group.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace normd::slow_road {
namespace {

// The sums of an element and of its square. An f64 is a multiple of 2^-1074, a product of two of 2^-2148, the square of
// that of 2^-4296; their magnitudes are under 2^1024, 2^2048 and 2^4096, and 2^62 of them are summed.
using SumOfValues = ExactSum<-2176, 136>;
using SumOfSquares = ExactSum<-4352, 268>;

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
    for (int64_t chunks = count_ / 1024; chunks % 2 == 0; chunks /= 2) folded = normd::Add(waiting_[level++], folded);
    waiting_[level] = folded;
  }
  DoublePair Total() const {
    DoublePair total = sum_;
    int level = 0;
    for (int64_t chunks = count_ / 1024; chunks > 0; chunks /= 2, ++level) {
      if (chunks % 2 != 0) total = normd::Add(waiting_[level], total);
    }
    return total;
  }

 private:
  DoublePair sum_;
  DoublePair waiting_[53];
  int64_t count_ = 0;
};

// -1, 0 or 1.
int Sign(double value) { return value > 0 ? 1 : value < 0 ? -1 : 0; }

// The sums of elements that are f64 each, without the detour over Dyadic.
void AddValue(double value, SumOfValues* sum, SumOfSquares* squares) {
  if (value == 0) return;
  int exponent = 0;
  const double fraction = std::frexp(std::abs(value), &exponent);
  const auto m = static_cast<uint64_t>(std::ldexp(fraction, 53));
  const int64_t e = exponent - 53;
  if (sum != nullptr) sum->Add(value < 0 ? -1 : 1, m, e);
  const auto square = static_cast<unsigned __int128>(m) * m;
  squares->Add(1, static_cast<uint64_t>(square), 2 * e);
  squares->Add(1, static_cast<uint64_t>(square >> 64), 2 * e + 64);
}

double WithSign(int64_t index, const Format& format, double sign) { return std::copysign(format.Value(index), sign); }

// The nearest value to a positive number. `beside` tells the sign of the number less a dyadic one. The search begins at
// the value `guess`, which costs least where it is the one below the number.
struct Found {
  int64_t index = 0;
  bool is_tie = false;
};
template <typename Beside>
Found FindNearest(const Format& format, int64_t guess, Beside beside) {
  const int64_t infinity = format.Infinity();
  const auto reaches = [&](int64_t index) { return beside(format.Exactly(index)) >= 0; };
  int64_t low = std::clamp<int64_t>(guess, 0, infinity - 1);
  int64_t high = low + 1;
  for (int64_t step = 1; low > 0 && !reaches(low); step = std::min(2 * step, infinity / 2)) {
    high = low;
    low -= std::min(step, low);
  }
  for (int64_t step = 1; high < infinity && reaches(high); step = std::min(2 * step, infinity / 2)) {
    low = high;
    high += std::min(step, infinity - high);
  }
  if (high == infinity && reaches(infinity)) return {infinity, false};
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (reaches(middle) ? low : high) = middle;
  }
  const int beyond = beside(format.Middle(low));
  return {beyond > 0 || (beyond == 0 && low % 2 != 0) ? low + 1 : low, beyond == 0};
}

// The value of `format` nearest to numerator / denominator, which is positive, near `guess`; `zero` if that is 0.
double RoundRatio(const Format& format, const Dyadic& numerator, const Dyadic& denominator, double guess, double zero) {
  if (numerator.sign() == 0) return zero;
  const Dyadic magnitude = numerator.Magnitude();
  const int64_t start = std::isfinite(guess) ? format.IndexBelow(std::abs(guess)) : 0;
  const Found found = FindNearest(format, start, [&](const Dyadic& m) { return Compare(magnitude, m * denominator); });
  return WithSign(found.index, format, numerator.sign());
}

}  // namespace

double ApplyIn(const Format& format, double n, const Affine& affine) {
  if (!std::isfinite(n)) return n * affine.weight.hi + affine.bias;
  const Dyadic product = Dyadic(n) * (Dyadic(affine.weight.hi) + Dyadic(affine.weight.lo));
  const Dyadic one = Dyadic::Integer(1);
  const double rough = n * affine.weight.hi;
  const double scaled = RoundRatio(format, product, one, rough, rough);
  if (!std::isfinite(scaled)) return scaled + affine.bias;
  const double sum = scaled + affine.bias;
  return RoundRatio(format, Dyadic(scaled) + Dyadic(affine.bias), one, sum, sum);
}

DoublePair SlowGroup::ValueOf(const Element& element) const {
  if (element.r == 0) return {element.x, 0};
  return normd::Add({element.x, 0}, TwoProduct(formula_.scale, element.r));
}

Dyadic SlowGroup::Exactly(const Element& element) const {
  if (element.r == 0) return Dyadic(element.x);
  return Dyadic(element.x) + Dyadic(formula_.scale) * Dyadic(element.r);
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
  const bool is_root = formula_.statistic == Statistic::kAbsSum || formula_.statistic == Statistic::kMaxAbs;
  const DoublePair root = is_root ? value : Sqrt(value);
  if (rule.mode == EpsMode::kAddToRoot) return normd::Add(root, {rule.eps, 0});
  const bool is_less = root.hi < rule.eps || (root.hi == rule.eps && root.lo < 0);
  return is_less ? DoublePair{rule.eps, 0} : root;
}

// The sums of the elements as `reader_` gives them; of kMaxAbs the largest magnitude.
SumsAbout SlowGroup::ReadSums(bool* has_residual) const {
  // A mean that is off by a few ulp of f64 is near enough to sum the squares about.
  const double about = formula_.centred() ? PairMean().hi : 0;
  PairwiseSum first, second;
  DoublePair largest;
  reader_([&](const Element* elements, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const DoublePair v = ValueOf(elements[i]);
      *has_residual = *has_residual || elements[i].r != 0;
      if (formula_.statistic == Statistic::kAbsSum || formula_.statistic == Statistic::kMaxAbs) {
        const DoublePair magnitude = v.hi < 0 ? Negate(v) : v;
        second.Add(magnitude);
        if (magnitude.hi > largest.hi || (magnitude.hi == largest.hi && magnitude.lo > largest.lo)) {
          largest = magnitude;
        }
        continue;
      }
      const DoublePair d = about == 0 ? v : normd::Add(v, {-about, 0});
      first.Add(d);
      second.Add(Multiply(d, d));
    }
  });
  return {about, {first.Total(), formula_.statistic == Statistic::kMaxAbs ? largest : second.Total()}};
}

SlowGroup::PairStatistics SlowGroup::SumPairs() const {
  PairStatistics result;
  DoublePair value = {formula_.given_variance, 0};
  double spread = 0;  // the deviation: the error of the mean is a part of it
  if (formula_.is_given) {
    if (formula_.centred()) result.mean = {formula_.given_mean, 0};
  } else {
    bool has_residual = false;
    const auto [about, sums] = sum_ != nullptr ? sum_() : ReadSums(&has_residual);
    const auto count = static_cast<double>(formula_.counted);
    value = sums.second;
    if (formula_.centred()) {
      const DoublePair delta = Divide(sums.first, count);
      const DoublePair correction = Multiply(sums.first, delta);
      result.mean = normd::Add({about, 0}, delta);
      if (!(correction.hi <= value.hi / 2)) return result;  // the mean is no f64 that the elements lie about
      value = normd::Add(value, Negate(correction));
    }
    if (formula_.centred() || formula_.statistic == Statistic::kMeanSquare) value = Divide(value, count);
    if (formula_.centred()) spread = std::sqrt(value.hi);
    // The elements of a stream that is kept wide are off by 2^-104 of themselves, and so of the mean.
    if (has_residual && spread > 0) result.inverse_error = 0x1p-101 * std::abs(result.mean.hi) / spread;
  }
  const bool divides = formula_.centred() || formula_.statistic == Statistic::kMeanSquare;
  result.m2 = value.hi * (divides && !formula_.is_given ? static_cast<double>(formula_.counted) : 1);
  const DoublePair divisor = PairDivisor(value);
  result.inverse = Reciprocal(divisor);
  // Products of numbers in these ranges have all their digits.
  const bool sums_in_range = formula_.is_given || (value.hi >= 0x1p-900 && value.hi <= 0x1p+960);
  const bool divisor_in_range = divisor.hi >= 0x1p-480 && divisor.hi <= 0x1p+480;
  result.usable = sums_in_range && divisor_in_range && std::abs(result.mean.hi) <= 0x1p+480;
  result.mean_error = 0x1p-91 * spread * result.inverse.hi;
  return result;
}

const SlowGroup::PairStatistics& SlowGroup::Pairs() {
  if (!pairs_.has_value()) pairs_ = SumPairs();
  return *pairs_;
}

// The sums are off by less than 2^-93 of the sums of their terms' magnitudes: 1,077 additions of 2^-104 each. 1/D is
// off by half of that and four roundings; a centred element by the error of the mean and two roundings of the larger of
// its parts, which are those of a residual stream where there is one. Three times the sum of these is taken.
SlowGroup::Approximation SlowGroup::Approximate(const Element& element, const Affine& affine) {
  const PairStatistics& s = Pairs();
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

std::optional<int64_t> SlowGroup::Decide(const Format& format, const Approximation& approximation, int64_t* guess) {
  const DoublePair y = approximation.y.hi < 0 ? Negate(approximation.y) : approximation.y;
  int64_t index = std::isnan(y.hi) ? 0 : format.IndexBelow(y.hi);
  *guess = index;
  if (index >= format.Infinity() || y.hi > 0x1p+1000) return std::nullopt;
  if (y.lo < 0 && index > 0 && format.Value(index) == y.hi) --index;
  const double half = std::ldexp(1.0, format.HalfStep(index));
  if (!(approximation.error <= half / 2)) return std::nullopt;
  const double distance = (y.hi - format.Value(index)) - half + y.lo;  // exact but for the last digit of y.lo
  if (std::abs(distance) <= approximation.error) return std::nullopt;
  return distance > 0 ? index + 1 : index;
}

// ---- Exact integers ----

SlowGroup::ExactStatistics SlowGroup::SumExactly() const {
  const DivisorRule& rule = formula_.rule;
  const Dyadic eps(rule.eps);
  const Dyadic n = Dyadic::Integer(static_cast<uint64_t>(formula_.counted));
  const Dyadic one = Dyadic::Integer(1);
  ExactStatistics s;
  s.count = s.k = one;
  Dyadic value;          // S, or R^2, times `scale`
  Dyadic squared = one;  // scale
  Dyadic root;           // R itself, where it is a sum of magnitudes
  bool is_root = false;
  if (formula_.is_given) {
    if (formula_.centred()) s.sum = Dyadic(formula_.given_mean);
    value = Dyadic(formula_.given_variance);
  } else {
    SumOfValues sum;
    SumOfSquares squares;
    const bool norm = formula_.statistic == Statistic::kAbsSum || formula_.statistic == Statistic::kMaxAbs;
    reader_([&](const Element* elements, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        if (!norm && elements[i].r == 0) {
          AddValue(elements[i].x, formula_.centred() ? &sum : nullptr, &squares);
          continue;
        }
        const Dyadic v = Exactly(elements[i]);
        if (formula_.statistic == Statistic::kMaxAbs) {
          const Dyadic magnitude = v.Magnitude();
          if (Compare(magnitude, root) > 0) root = magnitude;
        } else if (norm) {
          sum.Add(v.Magnitude());
        } else {
          if (formula_.centred()) sum.Add(v);
          squares.Add(v * v);
        }
      }
    });
    is_root = norm;
    if (formula_.statistic == Statistic::kAbsSum) root = sum.Value();
    if (!norm) value = squares.Value();
    if (formula_.centred()) {
      s.count = n;
      s.sum = sum.Value();
      value = n * value - s.sum * s.sum;
      squared = n * n;
    } else if (formula_.statistic == Statistic::kMeanSquare) {
      s.k = squared = n;
    }
  }
  // D times count: with a mean, sqrt(value) is n times the deviation, and eps is multiplied by n, too.
  const Dyadic scaled_eps = s.count * eps;
  if (is_root) {
    s.r = rule.mode == EpsMode::kAddToRoot ? root + eps : Compare(root, eps) < 0 ? eps : root;
  } else if (rule.mode == EpsMode::kInsideSqrt) {
    s.q = value + squared * eps;
  } else if (rule.mode == EpsMode::kAddToRoot) {
    s.q = value;
    s.r = scaled_eps;
  } else {
    const Dyadic least = squared * eps * eps;
    s.q = Compare(value, least) < 0 ? least : value;
  }
  s.m2 = is_root ? root : value;
  s.divisor_is_zero = s.r.sign() == 0 && s.q.sign() == 0;
  return s;
}

const SlowGroup::ExactStatistics& SlowGroup::Exact() {
  if (!exact_.has_value()) exact_ = SumExactly();
  return *exact_;
}

int SlowGroup::SignBeside(const Dyadic& product, const Dyadic& bias, const Dyadic& m) {
  const ExactStatistics& s = Exact();
  const Dyadic c = m - bias;
  const Dyadic u = s.r.sign() == 0 ? product : product - c * s.r;
  const int of_root = s.q.sign() == 0 ? 0 : c.sign();
  if (u.sign() != of_root || of_root == 0) return u.sign() - of_root > 0 ? 1 : u.sign() - of_root < 0 ? -1 : 0;
  return of_root * Compare(u * u * s.k, c * c * s.q);
}

double SlowGroup::NearestExactly(const Format& format, const Element& element, const Affine& affine, int64_t guess) {
  const ExactStatistics& s = Exact();
  if (s.divisor_is_zero) {
    return formula_.rule.zero_norm_gives_zero ? std::copysign(0.0, element.x + formula_.scale * element.r)
                                              : std::numeric_limits<double>::quiet_NaN();
  }
  const Dyadic centred = s.count * Exactly(element) - s.sum;
  const Dyadic product = centred * (Dyadic(affine.weight.hi) + Dyadic(affine.weight.lo));
  const Dyadic bias(affine.bias);
  const int side = product.sign() == 0 ? bias.sign() : SignBeside(product, bias, Dyadic());
  if (side == 0) {
    if (bias.sign() != 0) return 0;  // w * n = -b
    // A zero: +0 for an element that equals the mean, the sign of the element where nothing is subtracted.
    const double n = centred.sign() != 0  ? centred.sign()
                     : formula_.centred() ? 0.0
                                          : element.x + formula_.scale * element.r;
    return std::copysign(0.0, n) * std::copysign(1.0, affine.weight.hi) + affine.bias;
  }
  const auto beside = [&](const Dyadic& magnitude) {
    return side * SignBeside(product, bias, side > 0 ? magnitude : magnitude.Negated());
  };
  const Found found = FindNearest(format, guess, beside);
  if (found.is_tie) ++rungs_.ties;
  return WithSign(found.index, format, side);
}

double SlowGroup::NearestMean(const Format& format) {
  if (!formula_.centred()) return 0;
  const ExactStatistics& s = Exact();
  return RoundRatio(format, s.sum, s.count, Pairs().mean.hi, 0);
}

double SlowGroup::NearestInverse(const Format& format) {
  const ExactStatistics& s = Exact();
  if (s.divisor_is_zero) return std::numeric_limits<double>::infinity();
  const double guess = Pairs().inverse.hi;
  const int64_t start = std::isfinite(guess) ? format.IndexBelow(guess) : 0;
  const Found found = FindNearest(format, start, [&](const Dyadic& m) { return SignBeside(s.count, Dyadic(), m); });
  return format.Value(found.index);
}

double SlowGroup::NearestM2() {
  const ExactStatistics& s = Exact();
  return RoundRatio(FormatOf(DType::kF64), s.m2, s.count, Pairs().m2, 0);
}

double SlowGroup::Nearest(const Format& format, const Element& element, const Affine& affine) {
  int64_t guess = 0;
  if (first_ == FirstRung::kPairs) {
    ++rungs_.pairs;
    const Approximation approximation = Approximate(element, affine);
    const std::optional<int64_t> index = Decide(format, approximation, &guess);
    if (index.has_value() && Pairs().usable) {
      // A middle lies above 0, and y is farther from it than its error: the sign of y is known, unless y rounds to 0.
      if (*index > 0 || std::abs(approximation.y.hi) > approximation.error) {
        return WithSign(*index, format, Sign(approximation.y.hi));
      }
    }
  }
  ++rungs_.exact;
  return NearestExactly(format, element, affine, guess);
}

}  // namespace normd::slow_road
