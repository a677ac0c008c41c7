// Numbers m * 2^e with whole m of any length: every value of a tensor is one, and so are their sums and products,
// exactly. The arithmetic of the exact oracle (nearest.h), by GMP. Includes nothing of kernels/. Plain values.
#ifndef NORMD_TESTS_SUPPORT_ORACLE_DYADIC_H_
#define NORMD_TESTS_SUPPORT_ORACLE_DYADIC_H_

#include <gmpxx.h>

#include <cstdint>
#include <utility>

#include "tests/support/wide.h"

namespace normd::oracle {

class Dyadic {
 public:
  Dyadic() = default;
  explicit Dyadic(Wide v);  // REQUIRES: finite
  Dyadic(mpz_class significand, int64_t exponent) : significand_(std::move(significand)), exponent_(exponent) {}

  const mpz_class& significand() const { return significand_; }
  int64_t exponent() const { return exponent_; }
  int Sign() const { return sgn(significand_); }
  bool IsZero() const { return Sign() == 0; }

  Dyadic& operator+=(const Dyadic& other);
  Dyadic& operator*=(const Dyadic& other);
  friend Dyadic operator+(Dyadic a, const Dyadic& b) { return a += b; }
  friend Dyadic operator-(const Dyadic& a, const Dyadic& b) { return -b += a; }
  friend Dyadic operator*(Dyadic a, const Dyadic& b) { return a *= b; }
  Dyadic operator-() const { return Dyadic(-significand_, exponent_); }

 private:
  mpz_class significand_;
  int64_t exponent_ = 0;
};

Dyadic Abs(const Dyadic& v);
Dyadic Power(const Dyadic& v, int64_t exponent);  // REQUIRES: exponent >= 0
// Within 2^-50 of itself, at most 2^16000 and not below 2^-16000: an estimate.
Wide Approximate(const Dyadic& v);
// -1, 0 or 1: the sign of a - b.
int Compare(const Dyadic& a, const Dyadic& b);

}  // namespace normd::oracle

#endif  // NORMD_TESTS_SUPPORT_ORACLE_DYADIC_H_
