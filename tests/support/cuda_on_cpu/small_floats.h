// CUDA's 16-bit floats and their conversions, in integer code: to nearest, ties to even, with subnormals, overflow to
// infinity and every NaN to 0x7FFF, which is what cvt.rn.f16.f32 and cvt.rn.bf16.f32 give. Read by kernels through
// <cuda_fp16.h> and <cuda_bf16.h>. Threads: values and pure functions. Kernels calculate in float; of arithmetic there
// are products of pairs.
#ifndef NORMD_TESTS_SUPPORT_CUDA_ON_CPU_SMALL_FLOATS_H_
#define NORMD_TESTS_SUPPORT_CUDA_ON_CPU_SMALL_FLOATS_H_

#include <bit>
#include <cmath>
#include <cstdint>

// The names are CUDA's.
// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier)

struct __half {
  uint16_t bits;
};
struct __nv_bfloat16 {
  uint16_t bits;
};

// Pairs of them, as one word.
struct alignas(4) __half2 {
  __half x, y;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

constexpr __half __ushort_as_half(unsigned short bits) { return {bits}; }
constexpr unsigned short __half_as_ushort(__half value) { return value.bits; }
constexpr __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return {bits}; }
constexpr unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits; }

namespace cuda_on_cpu {

// mantissa >> shift, to nearest, ties to even. REQUIRES: 0 < shift < 32.
constexpr uint32_t ShiftToNearest(uint32_t mantissa, unsigned shift) {
  const uint32_t kept = mantissa >> shift;
  const uint32_t lost = mantissa & ((uint32_t{1} << shift) - 1);
  const uint32_t tie = uint32_t{1} << (shift - 1);
  return kept + (lost > tie || (lost == tie && (kept & 1) != 0) ? 1 : 0);
}

}  // namespace cuda_on_cpu

constexpr __half __float2half_rn(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  const auto with_sign = [sign](uint32_t half) { return __half{static_cast<uint16_t>(sign | half)}; };
  if (magnitude > 0x7f800000) return {0x7fff};
  if (magnitude >= 0x477ff000) return with_sign(0x7c00);  // 65520 and more round to infinity
  if (magnitude < 0x33000000) return with_sign(0);        // below 2^-25, half of the least subnormal
  if (magnitude < 0x38800000) {                           // below 2^-14: a subnormal, in units of 2^-24
    return with_sign(cuda_on_cpu::ShiftToNearest((magnitude & 0x7fffff) | 0x800000, 126 - (magnitude >> 23)));
  }
  // A carry out of the mantissa raises the exponent, as it should.
  return with_sign(cuda_on_cpu::ShiftToNearest(magnitude - (uint32_t{112} << 23), 13));
}

constexpr float __half2float(__half value) {
  const uint32_t sign = uint32_t{value.bits & 0x8000u} << 16;
  const uint32_t exponent = value.bits >> 10 & 0x1f;
  const uint32_t mantissa = value.bits & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(mantissa != 0 ? 0x7fffffff : sign | 0x7f800000);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float subnormal = static_cast<float>(mantissa) * 0x1p-24f;  // exact
  return sign != 0 ? -subnormal : subnormal;
}

constexpr __nv_bfloat16 __float2bfloat16_rn(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return {0x7fff};
  // Added to the whole, a carry goes where it should, into infinity at the end.
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

constexpr float __bfloat162float(__nv_bfloat16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }

constexpr __half2 __floats2half2_rn(float low, float high) { return {__float2half_rn(low), __float2half_rn(high)}; }
constexpr __nv_bfloat162 __floats2bfloat162_rn(float low, float high) {
  return {__float2bfloat16_rn(low), __float2bfloat16_rn(high)};
}

namespace cuda_on_cpu {

// Products have at most 22 bits: exact in float, in whose range those of halves stay.
constexpr __half Product(__half a, __half b) { return __float2half_rn(__half2float(a) * __half2float(b)); }
// Those of bfloat16 may be below the range of float, but not below that of double.
inline __nv_bfloat16 Product(__nv_bfloat16 a, __nv_bfloat16 b) {
  const double product = double{__bfloat162float(a)} * double{__bfloat162float(b)};
  if (!(std::fabs(product) < 0x1p-126)) return __float2bfloat16_rn(static_cast<float>(product));
  return __float2bfloat16_rn(static_cast<float>(std::nearbyint(product * 0x1p+133) * 0x1p-133));
}

}  // namespace cuda_on_cpu

constexpr __half2 __hmul2(__half2 a, __half2 b) {
  return {cuda_on_cpu::Product(a.x, b.x), cuda_on_cpu::Product(a.y, b.y)};
}
inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b) {
  return {cuda_on_cpu::Product(a.x, b.x), cuda_on_cpu::Product(a.y, b.y)};
}

// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)

#endif  // NORMD_TESTS_SUPPORT_CUDA_ON_CPU_SMALL_FLOATS_H_
