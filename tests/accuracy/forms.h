// Rows on which one way of calculating f32 elements as EXACT ends and another begins (kernels/group_statistics.h,
// "Elements"), and a search for rows that make the error as large as it gets: for forms_test.cc, which holds bounds,
// and for the accuracy report, which prints what is found. All of it is the same in every run.
#ifndef NORMD_TESTS_ACCURACY_FORMS_H_
#define NORMD_TESTS_ACCURACY_FORMS_H_

#include <cstdint>
#include <vector>

#include "kernels/spec.h"
#include "tests/kernels/call.h"
#include "tests/support/random.h"

namespace normd::accuracy {

// n values of f32 with the standard deviation `scale`.
cases::Values Normals(int64_t n, double scale, double mean, Random& random);

// A call with f32 elements.
cases::Call F32Call(const NormSpec& spec, std::vector<int64_t> shape, const cases::Values& x);

// The greatest error of y, in ulp at max(|y|, |b|, 2^-20 |w|).
double ErrorOf(const cases::Call& call);

// Groups of 3 to 4,097 elements whose mean is so many deviations from 0, in rows and channels, with and without
// parameters. The ways that need the mean to be near end at 8.
std::vector<cases::Call> CallsWithMean(double deviations);

// Rows about zero of elements near 2^exponent, with weights from 2^-63 to 2^63. Pairs of floats end at 2^-60 and 2^60.
std::vector<cases::Call> CallsWithFactor(int exponent);

// Where a search begins: random rows of `length` elements whose mean is so many deviations from 0.
struct SearchStart {
  Method method;
  int64_t length;
  double mean;
};
inline constexpr SearchStart kSearchStarts[] = {{Method::kLayerNorm, 3, 1},    {Method::kLayerNorm, 5, 7.5},
                                                {Method::kLayerNorm, 67, 7.9}, {Method::kLayerNorm, 24, 60},
                                                {Method::kLayerNorm, 24, 120}, {Method::kLayerNorm, 16, 0},
                                                {Method::kRmsNorm, 4, 0},      {Method::kRmsNorm, 67, 0},
                                                {Method::kRmsNorm, 16, 5},     {Method::kScaleNorm, 16, 0}};

// The greatest error of `rows` rows, of which each differs in one element from the worst so far; after 60 that are no
// worse it begins anew.
double Search(const SearchStart& start, int rows);

}  // namespace normd::accuracy

#endif  // NORMD_TESTS_ACCURACY_FORMS_H_
