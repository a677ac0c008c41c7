// The 16-bit floats of the CPU's CUDA: every pattern, and every place where rounding turns.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "gtest/gtest.h"

namespace normd {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Half {
  static constexpr int kExponentBits = 5;
  static constexpr int kMantissaBits = 10;
  static float Widen(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
  static uint16_t Narrow(float value) { return __half_as_ushort(__float2half_rn(value)); }
};

struct Bfloat16 {
  static constexpr int kExponentBits = 8;
  static constexpr int kMantissaBits = 7;
  static float Widen(uint16_t bits) { return __bfloat162float(__ushort_as_bfloat16(bits)); }
  static uint16_t Narrow(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }
};

template <typename Format>
class SmallFloats : public testing::Test {
 protected:
  static constexpr int kBias = (1 << (Format::kExponentBits - 1)) - 1;
  static constexpr uint16_t kInfinityBits = ((1 << Format::kExponentBits) - 1) << Format::kMantissaBits;

  // The value of a finite pattern, by the definition of the format.
  static float ValueOf(uint16_t bits) {
    const int exponent = (bits & 0x7fff) >> Format::kMantissaBits;
    const int mantissa = bits & ((1 << Format::kMantissaBits) - 1);
    const int hidden = exponent == 0 ? 0 : 1 << Format::kMantissaBits;
    const int power = (exponent == 0 ? 1 : exponent) - kBias - Format::kMantissaBits;
    const float magnitude = std::ldexp(static_cast<float>(hidden + mantissa), power);
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
  }
};

using Formats = testing::Types<Half, Bfloat16>;
TYPED_TEST_SUITE(SmallFloats, Formats);

TYPED_TEST(SmallFloats, EveryPatternHasItsValueAndComesBack) {
  for (int pattern = 0; pattern < 0x10000; ++pattern) {
    const auto bits = static_cast<uint16_t>(pattern);
    const float wide = TypeParam::Widen(bits);
    const int magnitude = pattern & 0x7fff;
    if (magnitude > this->kInfinityBits) {
      ASSERT_TRUE(std::isnan(wide)) << pattern;
      ASSERT_EQ(TypeParam::Narrow(wide), 0x7fff) << pattern;
      continue;
    }
    const float expected = magnitude < this->kInfinityBits ? this->ValueOf(bits)
                           : pattern == magnitude          ? kInfinity
                                                           : -kInfinity;
    ASSERT_EQ(wide, expected) << pattern;
    ASSERT_EQ(std::signbit(wide), (pattern & 0x8000) != 0) << pattern;
    ASSERT_EQ(TypeParam::Narrow(wide), bits) << pattern;
  }
}

TYPED_TEST(SmallFloats, HalfwayGoesToEvenAndAHairBesideItToTheNearest) {
  for (int pattern = 0; pattern < this->kInfinityBits; ++pattern) {
    const auto low = static_cast<uint16_t>(pattern);
    const auto high = static_cast<uint16_t>(pattern + 1);
    const double step = pattern + 1 < this->kInfinityBits ? double{this->ValueOf(high)} - this->ValueOf(low)
                                                          : double{this->ValueOf(low)} - this->ValueOf(pattern - 1);
    const auto halfway = static_cast<float>(this->ValueOf(low) + step / 2);
    const uint16_t even = (low & 1) == 0 ? low : high;
    ASSERT_EQ(TypeParam::Narrow(halfway), even) << pattern;
    ASSERT_EQ(TypeParam::Narrow(std::nextafter(halfway, 0.0f)), low) << pattern;
    ASSERT_EQ(TypeParam::Narrow(std::nextafter(halfway, kInfinity)), high) << pattern;
    ASSERT_EQ(TypeParam::Narrow(-halfway), even | 0x8000) << pattern;
    ASSERT_EQ(TypeParam::Narrow(std::nextafter(-halfway, -kInfinity)), high | 0x8000) << pattern;
  }
}

TYPED_TEST(SmallFloats, TheEndsAreInfinityZeroAndOneNan) {
  EXPECT_EQ(TypeParam::Narrow(std::numeric_limits<float>::max()), this->kInfinityBits);
  EXPECT_EQ(TypeParam::Narrow(-std::numeric_limits<float>::max()), this->kInfinityBits | 0x8000);
  EXPECT_EQ(TypeParam::Narrow(kInfinity), this->kInfinityBits);
  EXPECT_EQ(TypeParam::Narrow(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(TypeParam::Narrow(-std::numeric_limits<float>::denorm_min()), 0x8000);
  EXPECT_EQ(TypeParam::Narrow(-0.0f), 0x8000);
  EXPECT_EQ(TypeParam::Narrow(std::numeric_limits<float>::quiet_NaN()), 0x7fff);
  EXPECT_EQ(TypeParam::Narrow(-std::numeric_limits<float>::signaling_NaN()), 0x7fff);
}

TEST(SmallFloatPairs, ProductsAreRoundedOnceAndNonFiniteOnesShow) {
  const auto halves = [](float low, float high) {
    const __half2 product = __hmul2(__floats2half2_rn(low, high), __floats2half2_rn(3, 0));
    return std::pair(__half_as_ushort(product.x), __half_as_ushort(product.y));
  };
  EXPECT_EQ(halves(0x1.554p-2f, -2), std::pair(uint16_t{0x3c00}, uint16_t{0x8000}));  // 0x1.ffep-1 is halfway
  EXPECT_EQ(halves(kInfinity, kInfinity), std::pair(uint16_t{0x7c00}, uint16_t{0x7fff}));
  const auto bfloats = [](float low, float high) {
    const __nv_bfloat162 product = __hmul2(__floats2bfloat162_rn(low, high), __floats2bfloat162_rn(0x1.8p-66f, 0));
    return std::pair(__bfloat16_as_ushort(product.x), __bfloat16_as_ushort(product.y));
  };
  // 0x1.82p-66 * 0x1.8p-66 = 4.52... times the least subnormal, 2^-133.
  EXPECT_EQ(bfloats(0x1.82p-66f, -1), std::pair(uint16_t{5}, uint16_t{0x8000}));
  EXPECT_EQ(bfloats(1, std::numeric_limits<float>::quiet_NaN()),
            std::pair(__bfloat16_as_ushort(__float2bfloat16_rn(0x1.8p-66f)), uint16_t{0x7fff}));
}

}  // namespace
}  // namespace normd
