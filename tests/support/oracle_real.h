// A real number that is known exactly but has no finite digits, a / (r + q^(1/p)) + b of dyadic a, r, q and b, and its
// rounding to a type. Everything is decided by comparing whole numbers: no tolerance, no working precision. Every
// result that the exact oracle decides is such a number. Includes nothing of kernels/. Plain values; Real borrows its
// divisor.
#ifndef NORMD_TESTS_SUPPORT_ORACLE_REAL_H_
#define NORMD_TESTS_SUPPORT_ORACLE_REAL_H_

#include <cstdint>

#include "tests/support/oracle_dyadic.h"
#include "tests/support/wide.h"

namespace normd::oracle {

// r + q^(1/root). REQUIRES: q >= 0, root >= 1.
struct Divisor {
  Dyadic r, q;
  int64_t root = 2;

  bool IsZero() const { return r.IsZero() && q.IsZero(); }
};

// a / divisor + b. REQUIRES: the divisor is positive and outlives the number.
//
//   Divisor root_of_two = {.q = Dyadic(2)};
//   Real half_of_it = {.a = Dyadic(1), .divisor = &root_of_two};  // 1 / sqrt(2)
//   RoundToNearest(Type::kF32, half_of_it, 0.7).bits              // 0x3f3504f3
struct Real {
  Dyadic a;
  const Divisor* divisor;
  Dyadic b;

  // The sign of this number less m: of u + v q^(1/root) with v = b - m and u = a + v r, by comparing the powers of
  // both.
  int Compare(const Dyadic& m) const;
};

struct Rounded {
  uint64_t bits = 0;
  bool is_tie = false;   // midway between two numbers of the type, and so the even one
  bool is_zero = false;  // the number itself is 0; `bits` then is +0
};

// The number of `type` nearest to `real`, ties to even, overflow to Inf. `estimate` is where the search begins: it
// costs time where it is wrong, and nothing else.
Rounded RoundToNearest(Type type, const Real& real, Wide estimate);
Rounded RoundToNearest(Type type, const Dyadic& v);

// Whether `real` lies within 2^log2_ulp of the middle between two neighbours of `type`, ulp being their distance.
// REQUIRES: log2_ulp <= -2; `bits` is the rounded number, finite.
bool IsNearMiddle(Type type, const Real& real, uint64_t bits, int log2_ulp);

}  // namespace normd::oracle

#endif  // NORMD_TESTS_SUPPORT_ORACLE_REAL_H_
