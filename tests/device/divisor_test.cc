#include "kernels/cuda/divisor.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace normd::cuda {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();

TEST(DivisorTest, QuotientsAreThoseOfTheMachine) {
  std::vector<int64_t> divisors = {kLargest, kLargest - 1, int64_t{1} << 30, (int64_t{1} << 30) + 1, 12544, 1000003};
  for (int64_t i = 1; i < 300; ++i) divisors.push_back(i);
  for (const int64_t b : divisors) {
    const Divisor divisor(b);
    EXPECT_EQ(divisor.divisor(), b);
    for (const int64_t near : {int64_t{0}, b, 2 * b, 7 * b, kLargest / b * b, kLargest}) {
      for (const int64_t a : {near - 1, near, near + 1}) {
        if (a < 0 || a > kLargest) continue;
        EXPECT_EQ(divisor.Quotient(static_cast<uint32_t>(a)), a / b) << a << " / " << b;
        EXPECT_EQ(divisor.Remainder(static_cast<uint32_t>(a)), a % b) << a << " % " << b;
      }
    }
  }
}

TEST(DivisionTest, IsThatOfTheMachineInBothWidths) {
  for (const int64_t a : {int64_t{0}, int64_t{1}, int64_t{4294967295}, int64_t{4294967296}, int64_t{1} << 60}) {
    for (const int64_t b : {int64_t{1}, int64_t{3}, int64_t{4294967295}, int64_t{4294967297}}) {
      const auto [quotient, remainder] = Divide(a, b);
      EXPECT_EQ(quotient, a / b) << a << " / " << b;
      EXPECT_EQ(remainder, a % b) << a << " % " << b;
    }
  }
}

}  // namespace
}  // namespace normd::cuda
