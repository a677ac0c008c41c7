// How far a tensor is from the exact answer, in ulps of its dtype: the arithmetic of normctl verify. An ulp is the
// distance of two neighbouring values of the dtype around the exact value, and errors are fractions of it. Pure
// functions.
#ifndef NORMD_CLIENT_NORMCTL_ULPS_H_
#define NORMD_CLIENT_NORMCTL_ULPS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "client/cpp/tensor.h"

namespace normd::client {

// |candidate - exact| in ulps of `dtype` at max(|exact|, floor).
// - Where |exact| is a power of two, a candidate that is nearer to zero is measured by the smaller ulp below it. An
//   error of at most 0.5 thus always is a value that rounding to nearest may give.
// - At zero and among subnormals the ulp is the smallest subnormal. 0 and -0 are equal.
// - NaN equals NaN, an infinity equals itself and every exact value that rounds to it. In other pairs with NaN or an
//   infinite candidate or exact value nothing can be measured: the result is infinite (a mismatch).
// REQUIRES: `dtype` is F16, BF16, F32 or F64; `floor` is finite and not negative.
double Ulps(DType dtype, double candidate, double exact, double floor = 0);

// The error that the exact answer itself may have, an f64 within 4 ulp of f64, in ulps of `dtype`. 0 for F64, whose
// answer has no better.
double ExactnessUlps(DType dtype);

struct UlpError {
  int64_t index;  // into the flat tensor
  double ulps;    // infinite for a mismatch
};

struct UlpReport {
  int64_t elements = 0;
  int64_t mismatches = 0;  // left out of all figures below but `worst`
  double max = 0, mean = 0, p50 = 0, p99 = 0, p99_9 = 0;
  // The number of elements in each bucket of kUlpBuckets, above the bound of the bucket before.
  std::vector<int64_t> histogram;
  double max_absolute = 0;      // |candidate - exact|
  double max_relative = 0;      // |candidate - exact| / |exact| where exact is not 0
  std::vector<UlpError> worst;  // the largest errors above 0, mismatches first; of equal ones the first

  int64_t AtMost(double bound) const;  // REQUIRES: `bound` is one of kUlpBuckets
};

// Upper bounds of the histogram; the last bucket has none. A bound admits what ExactnessUlps cannot tell from it.
inline constexpr double kUlpBuckets[] = {0.5, 1, 2, 4, 8, 16, 64, 256, 4096, 65536};

struct UlpOptions {
  double floor = 0;
  size_t worst = 5;  // how many to list
  // What the errors are at least, one each: those of an earlier step. Empty: 0.
  absl::Span<const double> least = {};
};

// REQUIRES: equal lengths, that of `options.least` as well if it is not empty.
UlpReport CompareUlps(DType dtype, absl::Span<const double> candidate, absl::Span<const double> exact,
                      const UlpOptions& options);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_ULPS_H_
