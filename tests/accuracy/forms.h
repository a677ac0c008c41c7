// Rows of f32 about which a kernel changes its way of calculating: means near the guard of eight deviations, factors
// and weights near the bounds of pairs of floats. All of it is the same in every run.
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

// Groups of 3 to 4,097 elements whose mean is so many deviations from 0, in rows and channels, with and without
// parameters.
std::vector<cases::Call> CallsWithMean(double deviations);

// Rows about zero of elements near 2^exponent, with weights from 2^-63 to 2^63.
std::vector<cases::Call> CallsWithFactor(int exponent);

}  // namespace normd::accuracy

#endif  // NORMD_TESTS_ACCURACY_FORMS_H_
