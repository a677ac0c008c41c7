// What the kernels take for granted of the compiler, and what a compiler has got wrong.
#include "gtest/gtest.h"

namespace normd {
namespace {

// GCC 12.2 from -O2 on makes a vector of the two, and then takes both conversions away.
[[gnu::noinline]] void RestsOfF32(double x, double y, double* rests) {
  const double of_x = static_cast<float>(x);
  const double of_y = static_cast<float>(y);
  rests[0] = x - of_x;
  rests[1] = y - of_y;
}

// Read where the compiler must not calculate with it.
volatile double g_step = 0x1p-30;

TEST(CompilerTest, RoundsTwoValuesToF32) {
  double rests[2] = {};
  RestsOfF32(1 + g_step, 1 - g_step, rests);
  EXPECT_EQ(rests[0], 0x1p-30);
  EXPECT_EQ(rests[1], -0x1p-30);
}

// x * y + z is two roundings where the source says so (-ffp-contract=off).
[[gnu::noinline]] double ProductAndSum(double x, double y, double z) { return x * y + z; }

TEST(CompilerTest, RoundsAProductBeforeASum) {
  EXPECT_EQ(ProductAndSum(1 + g_step, 1 + g_step, -1), 0x1p-29);  // fused: 2^-29 + 2^-60
}

}  // namespace
}  // namespace normd
