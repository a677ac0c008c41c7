// Exact sums by GMP, which those of kernels/exact_sums are judged by: the sums of given elements, as two's complement
// words, and the moments and merged statistics that follow from them, each rounded once. Includes nothing of kernels/.
// Plain values.
#ifndef NORMD_TESTS_SUPPORT_EXACT_TOTALS_H_
#define NORMD_TESTS_SUPPORT_EXACT_TOTALS_H_

#include <cstdint>
#include <vector>

#include "tests/support/oracle_dyadic.h"

namespace normd::oracle {

struct Totals {
  int64_t count = 0;
  Dyadic sum, squares;

  // REQUIRES: finite.
  void Add(double x);
};

Totals TotalsOf(const std::vector<double>& elements);

// The integer number / 2^lowest in two's complement, the lowest word first. REQUIRES: it is one, and fits.
std::vector<uint64_t> WordsOf(const Dyadic& number, int64_t lowest, int words);

// The f64 nearest to over / under. REQUIRES: under > 0.
double NearestQuotient(const Dyadic& over, const Dyadic& under);

struct SampleStatistics {
  double count = 0, mean = 0, m2 = 0;
};
// Of all elements.
SampleStatistics MomentsOf(const Totals& totals);
// Chan, Golub and LeVeque's formulas on exact numbers, each result rounded once; the weight of what was before is
// multiplied by `fading`. REQUIRES: totals.count > 0.
SampleStatistics MergedWith(const SampleStatistics& before, double fading, const Totals& totals);

}  // namespace normd::oracle

#endif  // NORMD_TESTS_SUPPORT_EXACT_TOTALS_H_
