// The statistics of a group from its exact sums, each rounded once to f64.
// In the path: beside kernels/exact_sums/nearest_step.h, the reader of exact sums. Pure functions, safe from any
// thread.
#ifndef NORMD_KERNELS_EXACT_SUMS_NEAREST_MOMENTS_H_
#define NORMD_KERNELS_EXACT_SUMS_NEAREST_MOMENTS_H_

#include "kernels/exact_sums/exact_sums.h"
#include "kernels/moments.h"
#include "kernels/slow_road/dyadic.h"

namespace normd {

// n^2 times the variance, exactly: n times the sum of squares, less the square of the sum. Not negative for sums of
// elements.
slow_road::Dyadic ScaledVariance(const ExactTotals& totals);

// The f64 nearest to the mean and to the sum of (x - mean)^2. Where elements are not finite, m2 is NaN, and the mean is
// what IEEE addition gives: an infinity if all of them are that one, else NaN. All is 0 where nothing was summed.
//
//   NarrowExactSums sums;
//   for (float x : {1.0f, 3.0f}) sums.Add(x);
//   NearestMoment(sums);  // {count 2, mean 2, m2 2}
Moment NearestMoment(const ExactTotals& totals);
// The same, in a quarter of the time where pairs of f64 decide both roundings.
Moment NearestMoment(const NarrowExactSums& sums);
Moment NearestMoment(const WideExactSums& sums);

// The same for statistics about 0: the mean is 0, and m2 is the f64 nearest to the sum of squares; NaN or an infinity
// where such elements are.
Moment NearestMomentAboutZero(const ExactTotals& totals);

}  // namespace normd

#endif  // NORMD_KERNELS_EXACT_SUMS_NEAREST_MOMENTS_H_
