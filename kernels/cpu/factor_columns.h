// The numbers of adjacent columns, or of channels, for y = ((x - shift) - delta) * factor + b in f32, made of their
// statistics and parameters.
// In the path: the walkers (run_rows.cc, run_channels.cc, run_columns.cc) make them once for many calls of cpu::Apply.
// Owns its numbers; threads only read them.
#ifndef NORMD_KERNELS_CPU_FACTOR_COLUMNS_H_
#define NORMD_KERNELS_CPU_FACTOR_COLUMNS_H_

#include <cstdint>
#include <memory>

#include "kernels/cpu/kernels.h"
#include "kernels/group_statistics.h"

namespace normd::cpu {

// The numbers of each column in y = ((x - shift) - delta) * factor + b.
class FactorColumns {
 public:
  // `weight` and `bias` may be null: absent.
  void Fill(const ColumnStatistics& statistics, const double* weight, const double* bias, int64_t columns) {
    columns_ = columns;
    values_ = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(4 * columns));
    float* const shift = values_.get();
    float* const delta = shift + columns;
    float* const factor = delta + columns;
    float* const biases = factor + columns;
    double sum = 0;
    for (int64_t c = 0; c < columns; ++c) {  // a loop for each array would take longer
      const double product = weight == nullptr ? statistics.inverse_hi[c] : statistics.inverse_hi[c] * weight[c];
      sum += product * 0;
      factor[c] = static_cast<float>(product);
      shift[c] = static_cast<float>(statistics.shift[c]);
      delta[c] = static_cast<float>(statistics.delta_hi[c]);
      biases[c] = static_cast<float>(bias == nullptr ? -0.0 : bias[c]);
    }
    // FactorOf is the product where that is finite. A test of each product would cost more than all the rest.
    for (int64_t c = 0; sum != 0 && c < columns; ++c) {
      factor[c] = static_cast<float>(FactorOf(statistics.inverse_hi[c], weight == nullptr ? 1 : weight[c]));
    }
  }
  // The numbers from `column` on; null if Fill was not called.
  ColumnFactors At(int64_t column) const {
    const float* const shift = values_.get();
    if (shift == nullptr) return {};
    return ColumnFactors{shift, shift + columns_, shift + 2 * columns_, shift + 3 * columns_}.At(column);
  }

 private:
  std::unique_ptr<float[]> values_;  // all shifts, then all deltas, factors and biases
  int64_t columns_ = 0;
};

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_FACTOR_COLUMNS_H_
