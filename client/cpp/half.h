// IEEE binary16 (f16) and bfloat16 as bits. Widening to float is exact. Narrowing rounds a double once, to nearest
// even: NaN stays NaN, overflow gives infinity, subnormals are kept. Pure functions, safe from any thread.
//
//   const uint16_t bits = normd::client::DoubleToBf16(0.1);
//   const float value = normd::client::Bf16ToFloat(bits);  // 0.100097656
#ifndef NORMD_CLIENT_CPP_HALF_H_
#define NORMD_CLIENT_CPP_HALF_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace normd::client {

inline float Bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline float F16ToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1Fu;
  const uint32_t fraction = bits & 0x3FFu;
  if (exponent == 0) {  // zero and subnormals: fraction * 2^-24, exact in f32
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign == 0 ? magnitude : -magnitude;
  }
  const uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

// Rounds `value` to a float format of `digits` significant bits whose smallest subnormal is 2^min_exponent. The result
// is exact as a double. REQUIRES: the default rounding mode (nearest even).
inline double RoundToDigits(double value, int digits, int min_exponent) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent;
  std::frexp(value, &exponent);  // |value| in [2^(exponent-1), 2^exponent)
  const int unit = exponent - digits > min_exponent ? exponent - digits : min_exponent;
  return std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
}

inline uint16_t DoubleToBf16(double value) {
  if (std::isnan(value)) return std::signbit(value) ? 0xFFC0 : 0x7FC0;
  const double rounded = RoundToDigits(value, 8, -133);  // exact in f32, or beyond its range
  const float narrow = std::fabs(rounded) >= 0x1p128 ? std::copysign(std::numeric_limits<float>::infinity(),
                                                                     static_cast<float>(std::signbit(value) ? -1 : 1))
                                                     : static_cast<float>(rounded);
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(narrow) >> 16);
}

inline uint16_t DoubleToF16(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | 0x7E00;
  const double magnitude = std::fabs(RoundToDigits(value, 11, -24));
  if (magnitude >= 0x1p16) return sign | 0x7C00;
  if (magnitude < 0x1p-14) return sign | static_cast<uint16_t>(std::ldexp(magnitude, 24));
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(magnitude));
  return sign | static_cast<uint16_t>((bits - (112u << 23)) >> 13);
}

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_HALF_H_
