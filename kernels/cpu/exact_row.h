// Rows whose statistics are exact in f64: whole numbers, signs, a few values in turn. Their elements may be ties, or
// the mean itself, in large numbers, and plain arithmetic that is checked for errors decides them, without the slow
// road. In the path: run_nearest_rows.cc asks it before the slow road. Plain values; safe from any thread.
#ifndef NORMD_KERNELS_CPU_EXACT_ROW_H_
#define NORMD_KERNELS_CPU_EXACT_ROW_H_

#include <cstdint>
#include <optional>

#include "kernels/cpu/kernels.h"
#include "kernels/group_statistics.h"

namespace normd::cpu {

class ExactRow {
 public:
  // Sums n narrow elements, all of which are finite. For kMeanVariance and kMeanSquare; of other statistics nothing is
  // known to be exact.
  ExactRow(Statistic statistic, const DivisorRule& rule, const Elements& x, int64_t n);

  // The exact y of an element, where f64 has that number: `mean` is subtracted from x, and so on. Zeros have the signs
  // that the slow road gives them.
  std::optional<double> Y(double x, double weight, double bias) const;

 private:
  void SetDivisor(const DivisorRule& rule, double mean_of_squares, double grid);

  bool centred_ = false;
  bool knows_mean_ = false, knows_divisor_ = false;
  double mean_ = 0, inverse_ = 0;
};

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_EXACT_ROW_H_
