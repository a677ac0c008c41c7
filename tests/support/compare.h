// Judges what a backend returned by what the oracle computed. The bound, in units in the last place (ulp) of the
// tensor's type T: 1 ulp at max(|y|, |b|, 2^-20 |w|) for f32, f16 and bf16, 4 ulp at max(|y|, |b|, 2^-45 |w|) for f64.
// Functions return what is wrong in words, for EXPECT_EQ(..., ""), so they link without a test framework. Pure.
#ifndef NORMD_TESTS_SUPPORT_COMPARE_H_
#define NORMD_TESTS_SUPPORT_COMPARE_H_

#include <string>
#include <string_view>

#include "tests/support/oracle.h"
#include "tests/support/wide.h"

namespace normd::oracle {

// 1 or 4.
double BoundUlp(Type type);

// max(|y|, |b|, 2^-20 |w|), or 2^-45 for f64.
Wide BoundScale(Type type, Wide y, Wide b, Wide w);

// |got - want| in ulp of `type` at `scale`. NaN agrees with NaN alone and Inf with the same Inf alone, but where the
// finite `want` overflows T on rounding: there Inf counts as T's next number.
double ErrorUlp(Type type, Wide got, Wide want, Wide scale);

// Whether `got` is what multiplying by w and adding b, each step rounded once to T, makes of some number t of T that is
// within the bound of `normalised`.
bool ReachableStepwise(Type type, Wide got, Wide normalised, const Wide* w, const Wide* b);

// Every element of y (packed T). "" or "<name>: n of m elements differ" with the worst: index, got, want, error in ulp.
std::string CompareY(std::string_view name, const Spec& spec, Type type, const void* y, const Result& want);

// Bit for bit, but NaN agrees with any NaN.
std::string CompareH(std::string_view name, Type type, const void* h, const Result& want);

// MEAN and INV_STD: packed T, f32 or f64, one a set, by the same bound at max(|value|, 2^-20 or -45 of the deviation).
std::string CompareStatistics(std::string_view name, Type type, const void* mean, const void* inverse,
                              const Result& want);

// One returned f64 moment. Mean within 4 ulp and 2^-40 deviations, m2 within 2^-40 of itself.
std::string CompareMoment(std::string_view name, const SetStatistics& want, double count, double mean, double m2);

// "-1.25 (0xbfa00000)" with enough digits.
std::string Print(Type type, Wide v);

}  // namespace normd::oracle

#endif  // NORMD_TESTS_SUPPORT_COMPARE_H_
