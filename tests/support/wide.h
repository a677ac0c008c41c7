// Numbers of the oracle: 113-bit binary floating point and exact rounding from it to the tensor types.
// Includes nothing of kernels/ on purpose: what judges the kernels shares no code with them. Pure functions.
#ifndef NORMD_TESTS_SUPPORT_WIDE_H_
#define NORMD_TESTS_SUPPORT_WIDE_H_

#include <cstdint>
#include <vector>

namespace normd::oracle {

using Wide = __float128;

enum class Type : uint8_t { kF32 = 1, kF16 = 2, kBF16 = 3, kF64 = 4 };

// IEEE binary interchange format: 1 sign bit, then these.
struct Format {
  int exponent_bits;
  int mantissa_bits;  // stored ones

  int bytes() const { return (1 + exponent_bits + mantissa_bits) / 8; }
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint64_t infinity() const { return ((uint64_t{1} << exponent_bits) - 1) << mantissa_bits; }
  uint64_t sign() const { return uint64_t{1} << (exponent_bits + mantissa_bits); }
};

Format FormatOf(Type type);

bool IsNan(Wide v);
bool IsInf(Wide v);
bool IsFinite(Wide v);
bool IsNegative(Wide v);  // the sign bit, so true for -0
Wide Abs(Wide v);
Wide Max(Wide a, Wide b);
Wide Infinity();
// Newton from the f64 root; within one unit of the 113th bit.
Wide Sqrt(Wide v);
// Within 2^-107 of the result, Log2 near 1 and Exp2 far from 0, too. REQUIRES: v > 0, finite; v < 16000.
Wide Log2(Wide v);
Wide Exp2(Wide v);  // 0 under 2^-16000
// 2^exponent, exactly. REQUIRES: |exponent| < 16000.
Wide PowerOfTwo(int exponent);
// floor(log2(|v|)). REQUIRES: v finite and not 0.
int Exponent(Wide v);

// The bits of `v` rounded once to nearest even; overflow gives Inf, NaN stays NaN, subnormals are kept.
uint64_t Encode(Type type, Wide v);
Wide Decode(Type type, uint64_t bits);
Wide Round(Type type, Wide v);

// The numbers of a type in rising order have the orders -LastOrder, ..., -1, 0, 1, ..., LastOrder, the ends being
// infinities and both zeros being 0. REQUIRES: `bits` is not NaN.
int64_t OrderOf(Type type, uint64_t bits);
uint64_t BitsAt(Type type, int64_t order);
int64_t LastOrder(Type type);

// Element `index` of densely packed little-endian elements, at any alignment.
uint64_t LoadBits(Type type, const void* data, int64_t index);
Wide Load(Type type, const void* data, int64_t index);
void StoreBits(Type type, uint64_t bits, void* data, int64_t index);

// a + b, correct for one later rounding to any Type: where the sum does not fit 113 bits the last bit is set (rounding
// to odd), so that no tie is made up. Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008.
Wide AddToOdd(Wide a, Wide b);

// The distance between neighbours of `type` at `magnitude` (of the subnormals below the smallest normal number).
Wide Ulp(Type type, Wide magnitude);

}  // namespace normd::oracle

#endif  // NORMD_TESTS_SUPPORT_WIDE_H_
