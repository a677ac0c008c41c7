// The leading words of exact numbers: floating point of 256 bits and with exponents that no input exhausts. What the
// exact rung of the slow road calculates with before it compares integers, which it then hardly ever has to.
// In the path: kernels/slow_road/real.cc. Plain values, safe from any thread.
#ifndef NORMD_KERNELS_SLOW_ROAD_LEADING_H_
#define NORMD_KERNELS_SLOW_ROAD_LEADING_H_

#include <cstdint>

#include "kernels/slow_road/dyadic.h"

namespace normd::slow_road {

// sign * fraction * 2^top, where the fraction has 256 bits and is in [1/2, 1). Results are cut: a product is off by
// less than 2^-254 of itself, a sum by less than 2^-254 of the larger of its terms.
//
//   const Leading third = InverseRoot(Leading(Dyadic(3.0)), 1);
//   third.Truncated();  // 0x1.5555555555555p-2
class Leading {
 public:
  static constexpr int kWords = 4;

  Leading() = default;  // 0
  explicit Leading(const Dyadic& number);

  int sign() const { return sign_; }
  // 2^(top - 1) <= |v| < 2^top. REQUIRES: not 0.
  int64_t top() const { return top_; }
  // The fraction rounded to an f64: what a search for an inverse begins with.
  double Fraction() const;
  // The largest f64 that is not above |v|; Inf from 2^1024 on.
  double Truncated() const;
  Leading TimesPowerOfTwo(int64_t exponent) const;
  Leading Negated() const;
  // REQUIRES: divisor is not 0.
  Leading DividedBy(uint64_t divisor) const;

  friend Leading operator+(const Leading& a, const Leading& b);
  friend Leading operator-(const Leading& a, const Leading& b) { return a + b.Negated(); }
  friend Leading operator*(const Leading& a, const Leading& b);

 private:
  // Shifts the fraction up until its first bit is set; 0 has no sign.
  void Normalise();
  static Leading Subtract(const Leading& larger, const uint64_t* smaller);

  int sign_ = 0;
  int64_t top_ = 0;
  uint64_t words_[kWords] = {};  // the lowest first
};

// v^(-1 / order), off by less than 2^-248 of itself. REQUIRES: v > 0, 1 <= order <= 16.
Leading InverseRoot(const Leading& v, int order);

}  // namespace normd::slow_road

#endif  // NORMD_KERNELS_SLOW_ROAD_LEADING_H_
