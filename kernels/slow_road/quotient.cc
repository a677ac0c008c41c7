#include "kernels/slow_road/quotient.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace normd::slow_road {
namespace {

// The 64 leading bits of a magnitude: bits * 2^exponent <= magnitude < (bits + 1) * 2^exponent.
struct LeadingBits {
  uint64_t bits;  // the highest one is set
  int64_t exponent;
};

// REQUIRES: `number` is not 0.
LeadingBits LeadingBitsOf(const Dyadic& number) {
  const int top = number.size() - 1;
  const int zeros = std::countl_zero(number.word(top));
  uint64_t bits = number.word(top) << zeros;
  if (zeros > 0 && top > 0) bits |= number.word(top - 1) >> (64 - zeros);
  return {bits, number.exponent() + 64 * int64_t{top} - zeros};
}

// quotient * 2^exponent is within kQuotientError * 2^exponent of over / under, and `bits` has its highest one set.
LeadingBits Quotient(const LeadingBits& over, const LeadingBits& under) {
  const int up = over.bits >= under.bits ? 63 : 64;
  const unsigned __int128 shifted = static_cast<unsigned __int128>(over.bits) << up;
  return {static_cast<uint64_t>(shifted / under.bits), over.exponent - under.exponent - up};
}
// One for the division; the bits that LeadingBits leaves out are up to 2^-63 of over and of under, 2 units each.
constexpr uint64_t kQuotientError = 8;

}  // namespace

double RoundQuotient(const Format& format, const Dyadic& over, const Dyadic& under) {
  if (over.sign() == 0) return 0;
  const LeadingBits quotient = Quotient(LeadingBitsOf(over), LeadingBitsOf(under));
  // The value below is kept * 2^step. The bits of the quotient that do not fit are dropped, more of them where the
  // value is subnormal.
  const int64_t step = std::max<int64_t>(quotient.exponent + 64 - format.bits, format.HalfStep(0) + 1);
  const int64_t dropped = step - quotient.exponent;
  if (dropped > 66) return std::copysign(0.0, over.sign());  // less than a quarter of the least value
  const uint64_t kept = dropped < 64 ? quotient.bits >> dropped : 0;
  const unsigned __int128 half = static_cast<unsigned __int128>(1) << (dropped - 1);
  const unsigned __int128 rest = quotient.bits - (static_cast<unsigned __int128>(kept) << dropped);
  const unsigned __int128 distance = rest > half ? rest - half : half - rest;
  int beyond_middle = rest > half ? 1 : -1;
  if (distance <= kQuotientError) {
    const Dyadic middle(1, 2 * kept + 1, step - 1);
    beyond_middle = Compare(over.Magnitude(), middle * under);
  }
  const bool up = beyond_middle > 0 || (beyond_middle == 0 && kept % 2 != 0);
  const double value = std::ldexp(static_cast<double>(kept + (up ? 1 : 0)), static_cast<int>(step));
  const bool overflows = value >= std::ldexp(2.0, format.max_exponent);
  return std::copysign(overflows ? std::numeric_limits<double>::infinity() : value, over.sign());
}

}  // namespace normd::slow_road
