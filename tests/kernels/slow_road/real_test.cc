// a / D + b beside its definition: the value that is found has the number between the middles on either side of it.
#include "kernels/slow_road/real.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>

#include "gtest/gtest.h"
#include "kernels/slow_road/quotient.h"
#include "tests/support/random.h"

namespace normd::slow_road {
namespace {

struct Number {
  Dyadic a, r, q, k = Dyadic::Integer(1), b;
  int order = 2;

  Divisor D() const { return {r, q, k, order}; }
  // The sign of the number less m, by definition: (a - (m - b) r) / (m - b) beside the root, both to the power.
  int Beside(const Dyadic& m) const {
    const Dyadic c = m - b, u = a - c * r;
    if (c.sign() == 0 || q.sign() == 0) return u.sign();
    if (u.sign() != c.sign()) return u.sign() != 0 ? u.sign() : -c.sign();
    const Dyadic left = Power(u.Magnitude(), order) * k, right = Power(c.Magnitude(), order) * q;
    return c.sign() * Compare(left, right);
  }
};

// Whether `rounded` is the nearest value, ties to even.
void ExpectNearest(const Format& format, const Number& number, const Rounded& rounded) {
  ASSERT_EQ(rounded.sign, number.Beside(Dyadic()));
  if (rounded.sign == 0) return;
  const auto side = [&](int64_t index) {
    const Dyadic middle = format.Middle(index);
    return rounded.sign * number.Beside(rounded.sign > 0 ? middle : middle.Negated());
  };
  const int above = rounded.index == format.Infinity() ? -1 : side(rounded.index);
  const int below = rounded.index == 0 ? 1 : side(rounded.index - 1);
  EXPECT_LE(above, 0);
  EXPECT_GE(below, 0);
  const bool is_tie = above == 0 || below == 0;
  EXPECT_EQ(rounded.is_tie, is_tie);
  if (is_tie) {
    EXPECT_EQ(rounded.index % 2, 0);
  }
}

Dyadic AnyNumber(Random& random, int spread) {
  if (random.Below(8) == 0) return {};
  const auto part = [&] {
    const double few = static_cast<double>(random.Below(1025)) - 512;
    const double value = random.Below(2) == 0 ? few : random.Normal();
    return Dyadic(std::ldexp(value, static_cast<int>(random.Below(2 * spread + 1)) - spread));
  };
  return random.Below(2) == 0 ? part() : part() + part();
}

// Gives the number a divisor of few bits and the a that puts it on a middle.
void MakeTie(const Format& format, Random& random, Number* number) {
  const Dyadic root = Dyadic::Integer(static_cast<uint64_t>(1 + random.Below(100)));
  const Dyadic middle = format.Middle(random.Below(format.Infinity() - 1));
  if (number->b.sign() != 0) number->order = 2;
  number->q = Power(root, number->order) * number->k;
  number->a = (middle - number->b) * (number->r + root);
}

TEST(RealTest, FindsTheNearestValueOfAnyNumber) {
  Random random(TestSeed());
  ExactWork work;
  int64_t numbers = 0, ties = 0;
  while (numbers < 20'000) {
    const int spread = static_cast<int>(random.Below(3)) * 100;
    Number number = {.a = AnyNumber(random, spread),
                     .r = random.Below(2) == 0 ? Dyadic() : AnyNumber(random, spread).Magnitude(),
                     .q = AnyNumber(random, spread).Magnitude(),
                     .k = Dyadic::Integer(static_cast<uint64_t>(1 + random.Below(5))),
                     .b = random.Below(2) == 0 ? Dyadic() : AnyNumber(random, spread)};
    if (number.b.sign() == 0 || number.q.sign() == 0) number.order = static_cast<int>(1 + random.Below(10));
    if (number.r.sign() == 0 && number.q.sign() == 0) continue;
    const Format format = FormatOf(kAllDTypes[static_cast<size_t>(random.Below(4))]);
    if (random.Below(8) == 0) MakeTie(format, random, &number);
    const int64_t before = work.decisions;
    const Rounded rounded = RoundToNearest(format, number.a, number.D(), number.b, &work);
    EXPECT_LE(work.decisions - before, 2);
    ExpectNearest(format, number, rounded);
    ties += rounded.is_tie ? 1 : 0;
    ++numbers;
  }
  EXPECT_GT(ties, 2'000);
  EXPECT_LT(work.decisions, numbers / 4);
}

// The largest number of `bits` bits from 2^first_bit down whose square is less than v.
Dyadic SquareRoot(const Dyadic& v, int first_bit, int bits) {
  Dyadic root;
  for (int bit = first_bit; bit > first_bit - bits; --bit) {
    const Dyadic more = root + Dyadic(1, 1, bit);
    if (Compare(Square(more), v) < 0) root = more;
  }
  return root;
}

// w n and b cancel until 2^-1000 of them is left, of a rational n and of one that has no finite digits.
TEST(RealTest, KnowsWhatCancellationLeaves) {
  ExactWork work;
  const Format f64 = FormatOf(DType::kF64);
  for (const double square : {4.0, 2.0}) {
    for (const double sign : {1.0, -1.0}) {
      Number number;
      number.q = Dyadic(square);
      number.b = Dyadic(-3.0 * sign);
      number.a = Dyadic(6 * sign) + Dyadic(0x1.23p-1000);
      if (square == 2) {
        number.a = Dyadic(3.0 * sign) * SquareRoot(number.q, 0, 1'000);
      }
      const Rounded rounded = RoundToNearest(f64, number.a, number.D(), number.b, &work);
      ExpectNearest(f64, number, rounded);
      const double y = f64.Value(rounded.index);
      EXPECT_TRUE(y != 0 && std::abs(y) < 0x1p-990) << y;
    }
  }
  EXPECT_GE(work.decisions, 4);
}

// The longest numbers of a residual stream that is kept wide, and those of f64 alone, which cancel to a tie: the worst
// that a stranger can make. A product of words takes 1.1 ns, so that a byte costs less than 1 us.
TEST(RealTest, TheLongestNumbersTakeTwoDecisions) {
  Random random(TestSeed());
  const Format f64 = FormatOf(DType::kF64);
  for (const auto& [words_of_root, most] : {std::tuple(67, 9'000), std::tuple(33, 4'000)}) {
    Dyadic root = Dyadic::Integer(1);
    for (int i = 1; i < words_of_root; ++i) {
      root = root + Dyadic(1, static_cast<uint64_t>(random.Below(INT64_MAX)), -64 * i);
    }
    const Dyadic middle = f64.Middle((int64_t{3} << 52) + 12345);  // about 2^-1020
    Number number = {.a = (middle + Dyadic(1.0)) * root, .r = {}, .q = Square(root)};
    number.b = Dyadic(-1.0);
    ExactWork work;
    const Rounded rounded = RoundToNearest(f64, number.a, number.D(), number.b, &work);
    ExpectNearest(f64, number, rounded);
    EXPECT_TRUE(rounded.is_tie);
    EXPECT_EQ(work.decisions, 2);
    EXPECT_LE(work.word_products, most);
  }
}

TEST(RealTest, RoundsNumbersAndQuotients) {
  const Format f32 = FormatOf(DType::kF32);
  EXPECT_EQ(RoundNumber(f32, Dyadic(1 + 0x1p-24), 0), 1);
  EXPECT_EQ(RoundNumber(f32, Dyadic(1 + 0x3p-24), 0), 1 + 0x1p-22);
  EXPECT_EQ(RoundNumber(f32, Dyadic(-1e300), 0), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::signbit(RoundNumber(f32, Dyadic(), -0.0)));
  EXPECT_EQ(RoundQuotient(FormatOf(DType::kF64), Dyadic(-1.0), Dyadic(3.0)), -1.0 / 3);
  EXPECT_EQ(RoundQuotient(f32, Dyadic(), Dyadic(3.0)), 0);
  EXPECT_EQ(RoundQuotient(f32, Dyadic(0x1.ffffffp+127), Dyadic(1.0)), std::numeric_limits<double>::infinity());
  EXPECT_EQ(RoundQuotient(f32, Dyadic(0x1.fffffefp+127), Dyadic(1.0)), 0x1.fffffep+127);
  EXPECT_EQ(RoundQuotient(f32, Dyadic(0x1p-150), Dyadic(1.0)), 0);
  EXPECT_EQ(RoundQuotient(f32, Dyadic(0x3p-150), Dyadic(2.0)), 0x1p-149);
}

// A quotient is a number a / D, whose rounding knows nothing of quotients.
TEST(RealTest, RoundsQuotientsAsNumbers) {
  Random random(TestSeed());
  ExactWork work;
  int64_t ties = 0;
  for (int i = 0; i < 20'000; ++i) {
    const Format format = FormatOf(kAllDTypes[static_cast<size_t>(random.Below(4))]);
    Dyadic under = AnyNumber(random, 40).Magnitude();
    if (under.sign() == 0) under = Dyadic(3.0);
    const int64_t index = random.Below(format.Infinity());
    // Any number, a middle, or what is next to one.
    Dyadic over = AnyNumber(random, format.bits == 53 ? 900 : 100);
    if (i % 2 == 0) over = format.Middle(index) * under;
    if (i % 4 == 0) over = over + Dyadic(random.Below(2) == 0 ? 0x1p-1000 : -0x1p-1000) * under;
    const Rounded rounded = RoundToNearest(format, over, Divisor(under), Dyadic(), &work);
    ties += rounded.is_tie ? 1 : 0;
    ASSERT_EQ(RoundQuotient(format, over, under),
              rounded.sign == 0 ? 0 : std::copysign(format.Value(rounded.index), rounded.sign));
  }
  EXPECT_GT(ties, 4'000);
}

}  // namespace
}  // namespace normd::slow_road
