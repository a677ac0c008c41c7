// The exact oracle: for every result the number of its type that is nearest to the real-number formula on the inputs as
// given, ties to even, decided by comparing whole numbers and by nothing else. What oracle.h computes in 113 bits is
// only where the search begins. A backend whose EXACT is correctly rounded returns these bits. Includes nothing of
// kernels/. Pure functions, plain values; about 3 us an element.
#ifndef NORMD_TESTS_SUPPORT_NEAREST_H_
#define NORMD_TESTS_SUPPORT_NEAREST_H_

#include <cstdint>
#include <vector>

#include "tests/support/oracle.h"

namespace normd::oracle {

// Of one statistics group. NaN stands for every NaN.
struct NearestStatistics {
  int64_t count = 0;
  uint64_t mean = 0, inverse = 0;         // bits of MEAN and INV_STD: f32, for f64 tensors f64
  double moment_mean = 0, moment_m2 = 0;  // of the returned moments; 0 with given statistics
};

struct NearestResult {
  std::vector<uint64_t> y;  // bits of T
  std::vector<uint64_t> h;  // bits of T; empty without residual
  std::vector<NearestStatistics> groups;
  int64_t ties = 0;  // elements whose formula lies midway between two numbers of T
};

// LpNorm of an order that is neither whole nor infinite has no exact decision, and one above this takes too long.
inline constexpr double kMaxNearestOrder = 64;
bool HasNearest(const Spec& spec);

// With cast_then_affine the normalised value is rounded first and every operation after it once. PowerNorm without
// given statistics takes v as the mean of terms that are each rounded to f64, rounded once itself.
//
//   Spec spec = {.method = Method::kRms, .eps = 0.0};
//   Input input = {.shape = {2}, .x = {1, 7}};
//   Nearest(spec, input).y;  // 0.2 and 1.4 of f32: {0x3e4ccccd, 0x3fb33333}
//
// REQUIRES: as Compute, and HasNearest(spec).
NearestResult Nearest(const Spec& spec, const Input& input);

// For every element whether the formula (with cast_then_affine the normalised value) lies within 2^log2_ulp ulp of the
// middle between two numbers of T. Elements that are not finite do not. REQUIRES: as Nearest; log2_ulp <= -2.
std::vector<bool> NearMiddle(const Spec& spec, const Input& input, int log2_ulp);

// Whether the bits are the nearest number's: all bits, the sign of a zero among them, but NaN agrees with every NaN.
bool IsNearest(Type type, uint64_t bits, uint64_t nearest);

}  // namespace normd::oracle

#endif  // NORMD_TESTS_SUPPORT_NEAREST_H_
