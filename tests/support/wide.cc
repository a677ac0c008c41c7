#include "tests/support/wide.h"

#include <cmath>
#include <cstring>

namespace normd::oracle {
namespace {

using Bits = unsigned __int128;

constexpr int kWideMantissa = 112;
constexpr int kWideBias = 16383;
constexpr int kWideSpecial = 0x7fff;

Bits BitsOf(Wide v) {
  Bits bits;
  std::memcpy(&bits, &v, sizeof(bits));
  return bits;
}

Wide FromBits(Bits bits) {
  Wide v;
  std::memcpy(&v, &bits, sizeof(v));
  return v;
}

int BiasedExponent(Wide v) { return static_cast<int>(BitsOf(v) >> kWideMantissa) & kWideSpecial; }

Bits MantissaOf(Wide v) { return BitsOf(v) & ((Bits{1} << kWideMantissa) - 1); }

Wide Ln2() { return Wide(0x1.62e42fefa39efp-1) + Wide(0x1.abc9e3b39803fp-56) + Wide(0x1.7b57a079a1934p-111); }

// v / 2^shift rounded to nearest even.
Bits ShiftToNearestEven(Bits v, int shift) {
  if (shift > kWideMantissa + 1) return 0;
  const Bits quotient = v >> shift;
  const Bits rest = v & ((Bits{1} << shift) - 1);
  const Bits half = Bits{1} << (shift - 1);
  const bool up = rest > half || (rest == half && (quotient & 1) != 0);
  return quotient + (up ? 1 : 0);
}

}  // namespace

Format FormatOf(Type type) {
  switch (type) {
    case Type::kF32:
      return {8, 23};
    case Type::kF16:
      return {5, 10};
    case Type::kBF16:
      return {8, 7};
    case Type::kF64:
      break;
  }
  return {11, 52};
}

bool IsNan(Wide v) { return BiasedExponent(v) == kWideSpecial && MantissaOf(v) != 0; }
bool IsInf(Wide v) { return BiasedExponent(v) == kWideSpecial && MantissaOf(v) == 0; }
bool IsFinite(Wide v) { return BiasedExponent(v) != kWideSpecial; }
bool IsNegative(Wide v) { return (BitsOf(v) >> 127) != 0; }
Wide Abs(Wide v) { return FromBits(BitsOf(v) & ~(Bits{1} << 127)); }
Wide Max(Wide a, Wide b) { return a < b ? b : a; }
Wide Infinity() { return FromBits(Bits{kWideSpecial} << kWideMantissa); }

Wide PowerOfTwo(int exponent) { return FromBits(static_cast<Bits>(exponent + kWideBias) << kWideMantissa); }

int Exponent(Wide v) { return BiasedExponent(v) - kWideBias; }

Wide Sqrt(Wide v) {
  if (IsNan(v) || v == 0) return v;
  if (v < 0) return Wide(0) / Wide(0);
  if (IsInf(v)) return v;
  const int half = Exponent(v) >> 1;  // floor, so the scaled value is in [1, 4)
  const Wide scaled = v * PowerOfTwo(-half) * PowerOfTwo(-half);
  Wide root = std::sqrt(static_cast<double>(scaled));
  for (int i = 0; i < 3; ++i) root = (root + scaled / root) / 2;
  return root * PowerOfTwo(half);
}

Wide Log2(Wide v) {
  // v = 2^exponent * m, m within a factor of sqrt(2) of 1, so that nothing cancels; log(m) = 2 atanh((m - 1) / (m +
  // 1)).
  int exponent = Exponent(v);
  Wide m = v * PowerOfTwo(-exponent);
  if (m > Wide(1.4142135623730951)) {
    m /= 2;
    ++exponent;
  }
  const Wide s = (m - 1) / (m + 1);
  const Wide square = s * s;
  Wide series = 0;  // 1 / 3 + s^2 / 5 + ...: s^2 < 0.0295, so 24 terms leave 2^-124
  for (int n = 49; n >= 3; n -= 2) series = series * square + Wide(1) / n;
  return exponent + 2 * (s + s * square * series) / Ln2();
}

Wide Exp2(Wide v) {
  if (v < -16000) return 0;
  int whole = static_cast<int>(v);
  if (v - whole > Wide(0.5)) ++whole;
  if (v - whole < Wide(-0.5)) --whole;
  const Wide w = (v - whole) * Ln2();
  Wide series = 1;  // of Taylor: |w| < 0.35, so 28 terms leave 2^-144
  for (int n = 28; n >= 1; --n) series = 1 + series * w / n;
  return series * PowerOfTwo(whole);
}

uint64_t Encode(Type type, Wide v) {
  const Format format = FormatOf(type);
  const uint64_t sign = IsNegative(v) ? format.sign() : 0;
  const uint64_t infinity = format.infinity();
  if (IsNan(v)) return sign | infinity | uint64_t{1} << (format.mantissa_bits - 1);
  if (IsInf(v)) return sign | infinity;
  if (BiasedExponent(v) == 0) return sign;  // 0; subnormal in 113 bits is far below every type
  const int biased = Exponent(v) + format.bias();
  if (biased > (1 << format.exponent_bits)) return sign | infinity;
  const Bits significand = MantissaOf(v) | Bits{1} << kWideMantissa;
  const int lost = kWideMantissa - format.mantissa_bits;
  // The significand's leading bit adds 1 to the exponent field, and so does a carry out of the rounding.
  const uint64_t magnitude = biased >= 1 ? (static_cast<uint64_t>(biased - 1) << format.mantissa_bits) +
                                               static_cast<uint64_t>(ShiftToNearestEven(significand, lost))
                                         : static_cast<uint64_t>(ShiftToNearestEven(significand, lost + 1 - biased));
  return sign | (magnitude < infinity ? magnitude : infinity);
}

Wide Decode(Type type, uint64_t bits) {
  const Format format = FormatOf(type);
  const bool negative = (bits & format.sign()) != 0;
  const uint64_t magnitude = bits & (format.sign() - 1);
  const uint64_t mantissa = magnitude & ((uint64_t{1} << format.mantissa_bits) - 1);
  const int biased = static_cast<int>(magnitude >> format.mantissa_bits);
  Wide v;
  if (magnitude >= format.infinity()) {
    v = mantissa == 0 ? Infinity() : Abs(Wide(0) / Wide(0));
  } else if (biased == 0) {
    v = Wide(mantissa) * PowerOfTwo(1 - format.bias() - format.mantissa_bits);
  } else {
    v = Wide(mantissa | uint64_t{1} << format.mantissa_bits) *
        PowerOfTwo(biased - format.bias() - format.mantissa_bits);
  }
  return negative ? -v : v;
}

Wide Round(Type type, Wide v) { return Decode(type, Encode(type, v)); }

int64_t OrderOf(Type type, uint64_t bits) {
  const uint64_t sign = FormatOf(type).sign();
  const auto magnitude = static_cast<int64_t>(bits & (sign - 1));
  return (bits & sign) != 0 ? -magnitude : magnitude;
}

uint64_t BitsAt(Type type, int64_t order) {
  return order < 0 ? FormatOf(type).sign() | static_cast<uint64_t>(-order) : static_cast<uint64_t>(order);
}

int64_t LastOrder(Type type) { return static_cast<int64_t>(FormatOf(type).infinity()); }

uint64_t LoadBits(Type type, const void* data, int64_t index) {
  const int bytes = FormatOf(type).bytes();
  uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const char*>(data) + index * bytes, static_cast<size_t>(bytes));
  return bits;
}

Wide Load(Type type, const void* data, int64_t index) { return Decode(type, LoadBits(type, data, index)); }

void StoreBits(Type type, uint64_t bits, void* data, int64_t index) {
  const int bytes = FormatOf(type).bytes();
  std::memcpy(static_cast<char*>(data) + index * bytes, &bits, static_cast<size_t>(bytes));
}

Wide AddToOdd(Wide a, Wide b) {
  const Wide sum = a + b;
  if (!IsFinite(sum)) return sum;
  // Knuth's two-sum: `error` is a + b - sum, exactly.
  const Wide part = sum - a;
  const Wide error = (a - (sum - part)) + (b - part);
  if (error == 0 || (BitsOf(sum) & 1) != 0) return sum;
  const bool away_from_zero = IsNegative(error) == IsNegative(sum);
  return FromBits(away_from_zero ? BitsOf(sum) + 1 : BitsOf(sum) - 1);
}

Wide Ulp(Type type, Wide magnitude) {
  const Format format = FormatOf(type);
  const int lowest = 1 - format.bias();
  const int highest = format.bias();
  int exponent = lowest;
  if (!IsFinite(magnitude)) {
    exponent = highest;
  } else if (magnitude != 0) {
    exponent = Exponent(magnitude) < lowest ? lowest : Exponent(magnitude) > highest ? highest : Exponent(magnitude);
  }
  return PowerOfTwo(exponent - format.mantissa_bits);
}

}  // namespace normd::oracle
