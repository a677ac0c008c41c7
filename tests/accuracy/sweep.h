// Rows by decades of conditioning and by magnitudes over a dtype's whole range, for the tests and for the report.
// Pure: a function of the dtype.
#ifndef NORMD_TESTS_ACCURACY_SWEEP_H_
#define NORMD_TESTS_ACCURACY_SWEEP_H_

#include <string>
#include <vector>

#include "kernels/tensor.h"
#include "tests/support/case.h"

namespace normd::accuracy {

struct Sample {
  std::string name;  // "1e6 deviations", "magnitude 2^-40"
  double at = 0;     // mean / deviation, or the magnitude
  Case c;            // in EXACT
  CaseData data;
};

// Every method that subtracts a mean, rows and columns, the mean 1, 10, ... 1e6 standard deviations from 0 (f64 1e12;
// f16 100 and bf16 10: their next decade leaves a handful of different numbers). The deviation is 1 or a little more,
// so that the sample is no worse conditioned than it says. BatchNorm also with given statistics.
std::vector<Sample> ConditioningSweep(DType dtype);

// Every method on normal data times powers of two from the least subnormal to the greatest number that an element may
// have; eps 0 and the method's own.
std::vector<Sample> MagnitudeSweep(DType dtype);

}  // namespace normd::accuracy

#endif  // NORMD_TESTS_ACCURACY_SWEEP_H_
