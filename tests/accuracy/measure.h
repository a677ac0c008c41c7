// What the accuracy report measures: errors of the CPU backend against the oracle, in ulp.
#ifndef NORMD_TESTS_ACCURACY_MEASURE_H_
#define NORMD_TESTS_ACCURACY_MEASURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/accuracy/nearest_share.h"
#include "tests/support/case.h"

namespace normd::accuracy {

// The greatest error of y over some cases.
struct Worst {
  int64_t elements = 0;
  double ulp = 0;    // at max(|y|, |b|, 2^-20 |w|) or as else promised; 1e300: NaN or Inf beside a number
  double bound = 0;  // that was promised
  std::string name;  // of the case

  void Add(const Worst& other);
  bool Within() const { return ulp <= bound; }
};

// Runs the case; elements of which nothing is promised do not count. Exits on a case that does not run. Adds to
// `shares`, if there is one, what is wrongly rounded; that is not asked of FAST.
Worst Measure(Backend& backend, const Case& c, const CaseData& data, Shares* shares = nullptr);

// The errors of y in ulp at |y| itself, where the promise looks at max(|y|, ...).
struct OwnUlp {
  double max = 0, rms = 0;
};
OwnUlp MeasureAtOwnUlp(Backend& backend, const Case& c, const CaseData& data);

// How far the mean and variance of a batch lie from those of all samples, root mean square over channels and
// batches: the mean in standard deviations, the variance in variances.
struct BatchError {
  int64_t batch = 0;
  double mean = 0, variance = 0;
};
// BatchNorm's statistics of [batch, C] f32 at batches of 2, 4, ... 128, that together make up a group of `samples`
// rows. REQUIRES: 128 divides samples.
std::vector<BatchError> MeasureBatchStatistics(Backend& backend, int64_t samples, int64_t channels);

}  // namespace normd::accuracy

#endif  // NORMD_TESTS_ACCURACY_MEASURE_H_
