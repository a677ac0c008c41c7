// Exact dyadic numbers beside 128-bit integers, and at the ends of what a decision needs.
#include "kernels/slow_road/dyadic.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"
#include "tests/support/random.h"

namespace normd::slow_road {
namespace {

// A number whose value is an integer of at most 60 bits, times 2^exponent.
struct Small {
  int64_t value;
  int exponent;

  Dyadic Exactly() const { return {value < 0 ? -1 : 1, static_cast<uint64_t>(std::abs(value)), exponent}; }
};

int SignOf(__int128 value) { return value > 0 ? 1 : value < 0 ? -1 : 0; }

TEST(DyadicTest, AgreesWithIntegers) {
  Random random(TestSeed());
  for (int i = 0; i < 20'000; ++i) {
    const Small a = {random.Below(int64_t{1} << 40) - (int64_t{1} << 39), static_cast<int>(random.Below(20))};
    const Small b = {random.Below(int64_t{1} << 40) - (int64_t{1} << 39), static_cast<int>(random.Below(20))};
    const __int128 of_a = static_cast<__int128>(a.value) << a.exponent;
    const __int128 of_b = static_cast<__int128>(b.value) << b.exponent;
    EXPECT_EQ(Compare(a.Exactly(), b.Exactly()), SignOf(of_a - of_b));
    const Dyadic sum = a.Exactly() + b.Exactly();
    const Dyadic product = a.Exactly() * b.Exactly();
    EXPECT_EQ(Compare(sum - b.Exactly(), a.Exactly()), 0);
    EXPECT_EQ(sum.sign(), SignOf(of_a + of_b));
    EXPECT_EQ(product.sign(), SignOf(of_a) * SignOf(of_b));
    // (a + b)^2 - (a - b)^2 = 4 a b, whose terms have other carries.
    const Dyadic difference = a.Exactly() - b.Exactly();
    EXPECT_EQ(Compare(sum * sum - difference * difference, product * Dyadic::Integer(4)), 0);
  }
}

TEST(DyadicTest, HoldsEveryF64) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  constexpr double kLeast = std::numeric_limits<double>::denorm_min();
  for (const double value : {1.0, -0.75, 1e300, -1e-300, kLargest, kLeast, 0x1.fffffffffffffp-1022}) {
    EXPECT_EQ(Compare(Dyadic(value) - Dyadic(value), Dyadic()), 0);
    EXPECT_EQ(Dyadic(value).sign(), value > 0 ? 1 : -1);
    EXPECT_GT(Compare(Dyadic(std::abs(value)) + Dyadic(kLeast), Dyadic(std::abs(value))), 0);
  }
  EXPECT_EQ(Dyadic(0.0).sign(), 0);
  EXPECT_EQ(Dyadic(-0.0).sign(), 0);
}

// The largest number of a decision: (n * (x + scale * r) - sum) * w, squared, times a count.
TEST(DyadicTest, HasRoomForTheWorstDecision) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  constexpr double kLeast = std::numeric_limits<double>::denorm_min();
  const Dyadic count = Dyadic::Integer(uint64_t{1} << 62);
  const Dyadic element = Dyadic(kLeast) + Dyadic(kLargest) * Dyadic(kLargest) + Dyadic(kLeast) * Dyadic(kLeast);
  const Dyadic product = count * element * (Dyadic(kLargest) + Dyadic(kLeast));
  const Dyadic squared = product * product * count;
  EXPECT_LE(squared.size(), Dyadic::kMaxWords);
  EXPECT_EQ(Compare(squared, product), 1);
}

TEST(ExactSumTest, IsTheSumInAnyOrder) {
  Random random(TestSeed());
  for (int round = 0; round < 100; ++round) {
    ExactSum<-2176, 136> forward, backward;
    Dyadic want;
    Small terms[64];
    for (Small& term : terms) {
      term = {random.Below(int64_t{1} << 53) - (int64_t{1} << 52), static_cast<int>(random.Below(3000)) - 1500};
      const uint64_t magnitude = static_cast<uint64_t>(std::abs(term.value));
      forward.Add(term.value < 0 ? -1 : 1, magnitude, term.exponent);
      want = want + term.Exactly();
    }
    for (int i = 63; i >= 0; --i) backward.Add(terms[i].Exactly());
    EXPECT_EQ(Compare(forward.Value(), want), 0);
    EXPECT_EQ(Compare(backward.Value(), want), 0);
  }
}

TEST(ExactSumTest, KeepsAddingAfterItsValueWasRead) {
  ExactSum<-2176, 136> sum;
  sum.Add(-1, 5, -3);
  EXPECT_EQ(Compare(sum.Value(), Dyadic(-0.625)), 0);
  sum.Add(1, 5, -3);
  EXPECT_EQ(sum.Value().sign(), 0);
  sum.Add(1, 1, 900);
  EXPECT_EQ(Compare(sum.Value(), Dyadic(0x1p+900)), 0);
}

}  // namespace
}  // namespace normd::slow_road
