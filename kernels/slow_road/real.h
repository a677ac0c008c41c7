// Real numbers that are known exactly but have no finite digits, a / D + b with D = r + (q / k)^(1 / order), and their
// rounding. Every result that the slow road decides is such a number: an element is (count * x - sum) * w / D + b, a
// mean is sum / count.
// In the path: kernels/slow_road/group.cc, for what pairs of f64 leave undecided. Plain values, safe from any thread.
//
// a / D + b is calculated in 256 bits first. If it lies nearer to the middle m between two values than its error, then
//
//   y - m  has the sign of  u - c (q / k)^(1 / order),   c = m - b,  u = a - c r,
//
// which is found by comparing u^order * k with c^order * q in integers. Equal means a tie. Where a / D and b cancel so
// far that 256 bits leave too few, y is calculated from the product of u - c sqrt(q / k) and u + c sqrt(q / k), of
// which the one is exact and the other does not cancel. So an element takes two decisions in integers at most.
#ifndef NORMD_KERNELS_SLOW_ROAD_REAL_H_
#define NORMD_KERNELS_SLOW_ROAD_REAL_H_

#include <cstdint>

#include "kernels/slow_road/dyadic.h"
#include "kernels/slow_road/format.h"
#include "kernels/slow_road/leading.h"

namespace normd::slow_road {

class Divisor {
 public:
  // r + (q / k)^(1 / order). REQUIRES: r >= 0, q >= 0, k > 0; r and q are not both 0.
  Divisor(const Dyadic& r, const Dyadic& q, const Dyadic& k, int order);
  // r alone.
  explicit Divisor(const Dyadic& r) : Divisor(r, Dyadic(), Dyadic::Integer(1), 2) {}

  Dyadic r() const { return r_.Value(); }
  Dyadic q() const { return q_.Value(); }
  Dyadic k() const { return k_.Value(); }
  bool has_r() const { return r_.sign() != 0; }
  bool has_root() const { return q_.sign() != 0; }
  int order() const { return order_; }
  // 1 / D and (q / k)^(1 / order), each within 2^-244 of itself.
  const Leading& inverse() const { return inverse_; }
  const Leading& root() const { return root_; }

 private:
  KeptDyadic r_, q_, k_;
  int order_;
  Leading inverse_, root_;
};

// Where a number lies among the values of a type.
struct Rounded {
  int sign = 0;       // of the number; 0: it is exactly 0
  int64_t index = 0;  // of the magnitude of the nearest value, see Format
  bool is_tie = false;
};

// What has been done in integers, for tests of what the worst input costs.
struct ExactWork {
  int64_t decisions = 0, word_products = 0;
};

// The value of `format` nearest to a / divisor + b, ties to even. REQUIRES: b = 0, unless the divisor has the order 2
// or no q.
//
//   const Divisor root_of_two(Dyadic(), Dyadic(2.0), Dyadic(1.0), 2);
//   const Rounded half_of_it = RoundToNearest(f32, Dyadic(1.0), root_of_two, Dyadic(), &work);
//   f32.Value(half_of_it.index);  // 0x1.6a09e6p-1
Rounded RoundToNearest(const Format& format, const Dyadic& a, const Divisor& divisor, const Dyadic& b, ExactWork* work);
// The value nearest to `number`, with its sign; `zero` if the number is 0.
double RoundNumber(const Format& format, const Dyadic& number, double zero);

}  // namespace normd::slow_road

#endif  // NORMD_KERNELS_SLOW_ROAD_REAL_H_
