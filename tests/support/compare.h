// Judges what a backend returned by what the oracle computed, within a Bound: the promise as data, in units in the last
// place (ulp) of the tensor's type T. Functions return what is wrong in words, for EXPECT_EQ(..., ""), so they link
// without a test framework. Pure.
#ifndef NORMD_TESTS_SUPPORT_COMPARE_H_
#define NORMD_TESTS_SUPPORT_COMPARE_H_

#include <string>
#include <string_view>
#include <vector>

#include "tests/support/oracle.h"
#include "tests/support/wide.h"

namespace normd::oracle {

// What a precision promises.
struct Bound {
  double ulp = 1;                 // of T for y, of f32 or f64 for MEAN and INV_STD
  int weight_log2 = -20;          // y at max(|y|, |b|, 2^weight_log2 |w|), MEAN at max(|mean|, 2^weight_log2 deviation)
  bool at_product = false;        // y also at |w n|, n the normalised value: b may cancel what w n has of errors in it
  Type moment_type = Type::kF64;  // a returned moment's mean: 4 ulp of this type
  int moment_deviation_log2 = 10;  // at max(|mean|, 2^moment_deviation_log2 deviation)
  int m2_log2 = -40;               // m2 within 2^m2_log2 of itself
  double max_condition = 0;        // |mean| / deviation up to which the rest is promised; 0: any
  bool centre_is_exact = true;     // an element at the mean gives +0; else what its tiny difference rounds to
};

// EXACT: 1 ulp at max(|y|, |b|, 2^-20 |w|) for f32, f16 and bf16, 4 ulp at max(|y|, |b|, 2^-45 |w|) for f64.
Bound ExactBound(Type type);
// FAST: 4 ulp at max(|y|, |b|, |w|, |w n|) while |mean| <= 1e6 deviations, m2 within 2^-18. REQUIRES: not f64.
Bound FastBound();

// max(|y|, |b|, 2^weight_log2 |w|), and |y - b|, which is |w n|, where the bound says so.
Wide BoundScale(const Bound& bound, Wide y, Wide b, Wide w);

// Whether the bound speaks of this set: its mean is at most max_condition deviations away from 0, or all its values are
// equal, which is no matter of conditioning. What it does not speak of is not judged.
bool Promised(const Bound& bound, const GroupStatistics& group);

// |got - want| in ulp of `type` at `scale`. NaN agrees with NaN alone and Inf with the same Inf alone, but where the
// finite `want` overflows T on rounding: there Inf counts as T's next number.
double ErrorUlp(Type type, Wide got, Wide want, Wide scale);

// Whether `got` is what multiplying by w and adding b, each step rounded once to T, makes of some number t of T that is
// within the bound of `normalised`.
bool ReachableStepwise(const Bound& bound, Type type, Wide got, Wide normalised, const Wide* w, const Wide* b);

// The error of every element of y (packed T), in ulp at its scale: 0 where CAST_THEN_AFFINE can reach it, 1e300 where
// it is not comparable (NaN beside a number, -0 beside +0), -1 where nothing is promised.
std::vector<double> YErrors(const Spec& spec, const Bound& bound, Type type, const void* y, const Result& want);

// Every element of y. "" or "<name>: n of m elements differ" with the worst: index, got, want, error in ulp.
std::string CompareY(std::string_view name, const Spec& spec, const Bound& bound, Type type, const void* y,
                     const Result& want);

// Bit for bit, but NaN agrees with any NaN.
std::string CompareH(std::string_view name, Type type, const void* h, const Result& want);

// MEAN and INV_STD: packed `type`, f32 or f64, one a group.
std::string CompareStatistics(std::string_view name, const Bound& bound, Type type, const void* mean,
                              const void* inverse, const Result& want);

// One returned moment, of f64 fields.
std::string CompareMoment(std::string_view name, const Bound& bound, const GroupStatistics& want, double count,
                          double mean, double m2);

// "-1.25 (0xbfa00000)" with enough digits.
std::string Print(Type type, Wide v);

}  // namespace normd::oracle

#endif  // NORMD_TESTS_SUPPORT_COMPARE_H_
