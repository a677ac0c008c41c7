#include "tests/support/oracle_real.h"

#include <algorithm>

namespace normd::oracle {
namespace {

// Half the distance of the number of this order to the next is 2^(the result): that of the one nearer to 0.
int64_t HalfUlpExponent(const Format& format, int64_t magnitude) {
  return std::max<int64_t>(magnitude >> format.mantissa_bits, 1) - format.bias() - format.mantissa_bits - 1;
}

// Midway between the numbers of this order and the next, where Inf stands for 2^(greatest exponent + 1).
Dyadic MiddleAfter(Type type, int64_t order) {
  const Format format = FormatOf(type);
  const int64_t magnitude = order >= 0 ? order : -order - 1;
  int64_t significand = magnitude & ((int64_t{1} << format.mantissa_bits) - 1);
  if (magnitude >> format.mantissa_bits > 0) significand += int64_t{1} << format.mantissa_bits;
  significand = 2 * significand + 1;
  return {mpz_class(static_cast<long>(order >= 0 ? significand : -significand)), HalfUlpExponent(format, magnitude)};
}

// The least order whose middle to the next is at least the number, found from `start` by steps that double and then by
// bisection. `side(k)` is the sign of the number less the middle after k. A step may be longer than an int64_t counts.
template <typename Side>
int64_t FirstNotBelow(int64_t start, int64_t last, Side side) {
  const auto reached = [&](int64_t k) { return k >= last || side(k) <= 0; };
  using Long = __int128;
  int64_t low = start, high = start;  // in the end `low` is not reached, `high` is
  Long step = 1;
  if (reached(start)) {
    do {
      low = static_cast<int64_t>(std::max(Long{-last - 1}, high - step));
      if (low < -last || !reached(low)) break;
      high = low;
      step *= 2;
    } while (true);
  } else {
    do {
      high = static_cast<int64_t>(std::min(Long{last}, low + step));
      if (reached(high)) break;
      low = high;
      step *= 2;
    } while (true);
  }
  while (Long{high} - low > 1) {
    const auto middle = static_cast<int64_t>(low + (Long{high} - low) / 2);
    (reached(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace

int Real::Compare(const Dyadic& m) const {
  const Dyadic v = b - m;
  Dyadic u = a;
  if (!divisor->r.IsZero()) u += v * divisor->r;
  const int of_u = u.Sign(), of_v = divisor->q.IsZero() ? 0 : v.Sign();
  if (of_u * of_v >= 0) return of_u != 0 ? of_u : of_v;
  const int64_t root = divisor->root;
  return of_u * oracle::Compare(Power(Abs(u), root), Power(Abs(v), root) * divisor->q);
}

Rounded RoundToNearest(Type type, const Real& real, Wide estimate) {
  const int64_t last = LastOrder(type);
  int64_t tie = last;  // the order whose middle to the next is the number, if there is one
  const auto side = [&](int64_t order) {
    const int sign = real.Compare(MiddleAfter(type, order));
    if (sign == 0) tie = order;
    return sign;
  };
  const int64_t start = IsNan(estimate) ? 0 : OrderOf(type, Encode(type, estimate));
  int64_t order = FirstNotBelow(start, last, side);
  Rounded rounded;
  rounded.is_tie = order < last && tie == order;
  if (rounded.is_tie && order % 2 != 0) ++order;
  rounded.bits = BitsAt(type, order);
  if (order != 0) return rounded;
  const int sign = real.Compare(Dyadic());
  rounded.is_zero = sign == 0;
  if (sign < 0) rounded.bits |= FormatOf(type).sign();
  return rounded;
}

Rounded RoundToNearest(Type type, const Dyadic& v) {
  const Divisor one = {.r = Dyadic(1), .q = {}};
  return RoundToNearest(type, Real{.a = {}, .divisor = &one, .b = v}, Approximate(v));
}

bool IsNearMiddle(Type type, const Real& real, uint64_t bits, int log2_ulp) {
  const int64_t order = OrderOf(type, bits);
  for (const int64_t k : {order - 1, order}) {
    const Dyadic middle = MiddleAfter(type, k);
    const Dyadic reach(1, HalfUlpExponent(FormatOf(type), k >= 0 ? k : -k - 1) + 1 + log2_ulp);
    if (real.Compare(middle - reach) >= 0 && real.Compare(middle + reach) <= 0) return true;
  }
  return false;
}

}  // namespace normd::oracle
