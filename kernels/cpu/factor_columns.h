// The numbers of adjacent columns, or of channels, for y = ((x - shift) - delta) * factor + b, made of their statistics
// and parameters.
// In the path: the walkers (run_rows.cc, run_channels.cc, run_columns.cc) make them once for many calls of cpu::Apply.
// Owns its numbers; threads only read them.
#ifndef NORMD_KERNELS_CPU_FACTOR_COLUMNS_H_
#define NORMD_KERNELS_CPU_FACTOR_COLUMNS_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "kernels/cpu/kernels.h"
#include "kernels/group_statistics.h"

namespace normd::cpu {

// The numbers of each column in y = ((x - shift) - delta) * factor + b, in the type that is calculated in.
template <typename Real>
class FactorColumns {
 public:
  // `weight` and `bias` may be null: absent.
  void Fill(const ColumnStatistics& statistics, const double* weight, const double* bias, int64_t columns) {
    columns_ = columns;
    values_ = std::make_unique_for_overwrite<Real[]>(static_cast<size_t>(4 * columns));
    Real* const shift = values_.get();
    Real* const delta = shift + columns;
    Real* const factor = delta + columns;
    Real* const biases = factor + columns;
    constexpr bool kIsF64 = std::is_same_v<Real, double>;
    double sum = 0;
    for (int64_t c = 0; c < columns; ++c) {
      const double product = weight == nullptr ? statistics.inverse_hi[c] : statistics.inverse_hi[c] * weight[c];
      sum += product * 0;
      factor[c] = static_cast<Real>(product);
      if constexpr (!kIsF64) {  // a loop for each array would take longer
        shift[c] = static_cast<Real>(statistics.shift[c]);
        delta[c] = static_cast<Real>(statistics.delta_hi[c]);
        biases[c] = static_cast<Real>(bias == nullptr ? -0.0 : bias[c]);
      }
    }
    if constexpr (kIsF64) {
      std::copy_n(statistics.shift, columns, shift);
      std::copy_n(statistics.delta_hi, columns, delta);
      bias == nullptr ? std::fill_n(biases, columns, -0.0) : std::copy_n(bias, columns, biases);
    }
    // FactorOf is the product where that is finite. A test of each product would cost more than all the rest.
    for (int64_t c = 0; sum != 0 && c < columns; ++c) {
      factor[c] = static_cast<Real>(FactorOf(statistics.inverse_hi[c], weight == nullptr ? 1 : weight[c]));
    }
  }
  // The numbers from `column` on; null if Fill was not called.
  ColumnFactors<Real> At(int64_t column) const {
    const Real* const shift = values_.get();
    if (shift == nullptr) return {};
    return ColumnFactors<Real>{shift, shift + columns_, shift + 2 * columns_, shift + 3 * columns_}.At(column);
  }

 private:
  std::unique_ptr<Real[]> values_;  // all shifts, then all deltas, factors and biases
  int64_t columns_ = 0;
};

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_FACTOR_COLUMNS_H_
