// The leading words of exact numbers beside the numbers themselves.
#include "kernels/slow_road/leading.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"
#include "tests/support/constants.h"
#include "tests/support/random.h"

namespace normd::slow_road {
namespace {

// A number of up to 600 bits, of either sign.
Dyadic LongNumber(Random& random) {
  Dyadic number;
  for (int i = 0; i < 4; ++i) {
    const double part = std::ldexp(random.Normal(), static_cast<int>(random.Below(600)) - 300);
    number = number + Dyadic(part);
  }
  return number;
}

// log2 of |a - b| beside `scale`, at most.
int64_t ErrorBits(const Leading& a, const Leading& b, const Leading& scale) {
  const Leading difference = a - b;
  return difference.sign() == 0 ? -1000 : difference.top() - scale.top() + 1;
}

TEST(LeadingTest, AddsAndMultiplies) {
  Random random(TestSeed());
  for (int i = 0; i < 5'000; ++i) {
    const Dyadic a = LongNumber(random);
    const Dyadic b = i % 5 == 0 ? a.Negated() + Dyadic(std::ldexp(random.Normal(), -200)) : LongNumber(random);
    const Leading x(a), y(b);
    EXPECT_EQ((x * y).sign(), a.sign() * b.sign());
    EXPECT_LE(ErrorBits(x * y, Leading(a * b), x * y), -252);
    EXPECT_LE(ErrorBits(x + y, Leading(a + b), x.top() > y.top() ? x : y), -252);
    EXPECT_LE(ErrorBits(x - y, Leading(a - b), x.top() > y.top() ? x : y), -252);
  }
  const Leading one{Dyadic(1.0)};
  EXPECT_EQ((one - one).sign(), 0);
  EXPECT_EQ((one + Leading()).Truncated(), 1);
}

TEST(LeadingTest, IsCutToAnF64) {
  constexpr double kLeast = std::numeric_limits<double>::denorm_min();
  for (const double value : {1.0, -0.75, 1e300, 1e-300, std::numeric_limits<double>::max(), kLeast, 7 * kLeast}) {
    const Dyadic exact(value);
    EXPECT_EQ(Leading(exact).Truncated(), std::abs(value));
    const Dyadic less = exact.Magnitude() - Dyadic(1, 1, -1200);
    EXPECT_EQ(Leading(less).Truncated(), value == kLeast ? 0 : std::nextafter(std::abs(value), 0)) << value;
  }
  EXPECT_EQ(Leading(Dyadic(1, 1, 1024)).Truncated(), kInf);
  EXPECT_EQ(Leading(Dyadic(1, 1, -1075)).Truncated(), 0);
}

TEST(LeadingTest, FindsInverseRoots) {
  Random random(TestSeed());
  const Leading one{Dyadic(1.0)};
  for (int order = 1; order <= 10; ++order) {
    for (int i = 0; i < 200; ++i) {
      Dyadic number = LongNumber(random).Magnitude();
      for (int far = i % 4; far > 0; --far) number = number * Dyadic(i % 2 == 0 ? 1e300 : 1e-300);
      const Leading v(number);
      const Leading inverse = InverseRoot(v, order);
      Leading power = v;
      for (int k = 0; k < order; ++k) power = power * inverse;
      // A relative error is multiplied by the order.
      EXPECT_LE(ErrorBits(power, one, one), -244) << order;
    }
  }
  EXPECT_EQ(InverseRoot(Leading(Dyadic(3.0)), 1).Truncated(), 0x1.5555555555555p-2);
}

}  // namespace
}  // namespace normd::slow_road
