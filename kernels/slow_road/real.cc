#include "kernels/slow_road/real.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace normd::slow_road {
namespace {

// A number whose error is less than 2^error.
struct Approximation {
  Leading y;
  int64_t error = 0;
};

// A sum or quotient of a few Leading numbers is within 2^-kGoodBits of the largest of them: 244 bits of 1 / D, and 12
// for the rest.
constexpr int kGoodBits = 232;

int64_t TopOf(const Leading& number) { return number.sign() == 0 ? INT64_MIN / 2 : number.top(); }

class Rounding {
 public:
  Rounding(const Format& format, const Dyadic& a, const Divisor& divisor, const Dyadic& b, ExactWork* work)
      : format_(format), a_(a), divisor_(divisor), b_(b), work_(*work) {}

  Rounded Find() {
    Approximation number = Approximate();
    int64_t index = IndexBelow(number);
    // The number must be larger than its error, so that its sign is known, and half an ulp must be large beside the
    // error, so that one middle alone is in question.
    const bool shows_sign = number.y.sign() != 0 && number.y.top() > number.error + 1;
    if (!shows_sign || number.error > format_.HalfStep(std::min(index, format_.Infinity() - 1)) - 4) {
      number = ApproximateCancelling();
      index = IndexBelow(number);
    }
    Rounded rounded = {.sign = number.y.sign(), .index = index};
    if (rounded.sign == 0 || index == format_.Infinity()) return rounded;
    const int side = SideOfMiddle(number, format_.Middle(index));
    rounded.is_tie = side == 0;
    if (side > 0 || (side == 0 && index % 2 != 0)) ++rounded.index;
    return rounded;
  }

 private:
  int64_t IndexBelow(const Approximation& number) const { return format_.IndexBelow(number.y.Truncated()); }

  Approximation Approximate() const {
    const Leading n = Leading(a_) * divisor_.inverse();
    const Leading b(b_);
    return {n + b, std::max(TopOf(n), TopOf(b)) - kGoodBits};
  }

  // y = (u + b sqrt(q / k)) / D with u = a + b r. Where the two cancel, y is calculated from their difference, which
  // does not, and from the product of sum and difference, which is exact.
  Approximation ApproximateCancelling() {
    ++work_.decisions;
    const Dyadic u = !divisor_.has_r() ? a_ : a_ + Times(b_, divisor_.r());
    const Leading root = Leading(b_) * divisor_.root();
    if (u.sign() * root.sign() >= 0) return Relative((Leading(u) + root) * divisor_.inverse());
    const Dyadic product = SquareTimesK(u) - Times(PowerOf(b_), divisor_.q());
    const Leading divisor = Leading(divisor_.k()) * (Leading(u) - root);
    const Leading inverse = InverseRoot(divisor.sign() < 0 ? divisor.Negated() : divisor, 1);
    const Leading y = Leading(product) * divisor_.inverse() * inverse;
    return Relative(divisor.sign() < 0 ? y.Negated() : y);
  }
  static Approximation Relative(const Leading& y) { return {y, TopOf(y) - kGoodBits}; }

  // The sign of the number's magnitude less `middle`.
  int SideOfMiddle(const Approximation& number, const Dyadic& middle) {
    const int sign = number.y.sign();
    const Leading distance = (sign > 0 ? number.y : number.y.Negated()) - Leading(middle);
    if (distance.sign() != 0 && distance.top() > number.error + 1) return distance.sign();
    return sign * SideOf(sign > 0 ? middle : middle.Negated());
  }

  // The sign of y - m, in integers.
  int SideOf(const Dyadic& m) {
    ++work_.decisions;
    const Dyadic c = m - b_;
    const Dyadic u = !divisor_.has_r() ? a_ : a_ - Times(c, divisor_.r());
    const int of_root = !divisor_.has_root() ? 0 : c.sign();
    if (u.sign() != of_root || of_root == 0) return u.sign() > of_root ? 1 : u.sign() < of_root ? -1 : 0;
    if (divisor_.order() == 2) return of_root * Compare(SquareTimesK(u), Times(PowerOf(c), divisor_.q()));
    return of_root * Compare(TimesK(PowerOf(u.Magnitude())), Times(PowerOf(c.Magnitude()), divisor_.q()));
  }

  Dyadic Times(const Dyadic& a, const Dyadic& b) {
    work_.word_products += int64_t{a.size()} * b.size();
    return a * b;
  }
  // u^2 k, which both decisions compare if u is a.
  Dyadic SquareTimesK(const Dyadic& u) {
    if (divisor_.has_r()) return TimesK(PowerOf(u));
    if (!square_of_a_.has_value()) square_of_a_.emplace(TimesK(PowerOf(a_)));
    return *square_of_a_;
  }
  Dyadic TimesK(const Dyadic& a) {
    const Dyadic k = divisor_.k();
    return k.size() == 1 && k.exponent() == 0 && k.word(0) == 1 ? a : Times(a, k);
  }
  // To the order of the divisor. A square takes half of the products, and higher powers hardly more than their last.
  Dyadic PowerOf(const Dyadic& a) {
    const int64_t words = int64_t{a.size()} * divisor_.order() / 2;
    work_.word_products += (words * words + words) / 2;
    return Power(a, divisor_.order());
  }

  const Format& format_;
  const Dyadic& a_;
  const Divisor& divisor_;
  const Dyadic& b_;
  ExactWork& work_;
  std::optional<Dyadic> square_of_a_;  // times k
};

}  // namespace

Divisor::Divisor(const Dyadic& r, const Dyadic& q, const Dyadic& k, int order) : r_(r), q_(q), k_(k), order_(order) {
  if (q.sign() == 0) {
    inverse_ = InverseRoot(Leading(r), 1);
    return;
  }
  const bool is_word = k.size() == 1 && k.exponent() == 0;
  const Leading quotient = is_word ? Leading(q).DividedBy(k.word(0)) : Leading(q) * InverseRoot(Leading(k), 1);
  inverse_ = InverseRoot(quotient, order);
  root_ = quotient;
  for (int i = 1; i < order; ++i) root_ = root_ * inverse_;
  if (r.sign() != 0) inverse_ = InverseRoot(Leading(r) + root_, 1);
}

Rounded RoundToNearest(const Format& format, const Dyadic& a, const Divisor& divisor, const Dyadic& b,
                       ExactWork* work) {
  return Rounding(format, a, divisor, b, work).Find();
}

double RoundNumber(const Format& format, const Dyadic& number, double zero) {
  if (number.sign() == 0) return zero;
  const double below = Leading(number).Truncated();
  int64_t index = format.IndexBelow(below);
  if (index < format.Infinity()) {
    const int side = Compare(number.Magnitude(), format.Middle(index));
    if (side > 0 || (side == 0 && index % 2 != 0)) ++index;
  }
  return std::copysign(format.Value(index), number.sign());
}

}  // namespace normd::slow_road
