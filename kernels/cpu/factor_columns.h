// The numbers of adjacent columns, or of channels, for y = ((x - shift) - delta) * factor + b, made of their statistics
// and parameters. In the path: the walkers (run_rows.cc, run_columns.cc) make them once for many calls of cpu::Apply.
// No threads; owns its arrays.
#ifndef NORMD_KERNELS_CPU_FACTOR_COLUMNS_H_
#define NORMD_KERNELS_CPU_FACTOR_COLUMNS_H_

#include <cstdint>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kernels/group_statistics.h"

namespace normd::cpu {

// What y = ((x - shift) - delta) * factor + b needs of each column, in the type that is calculated in.
template <typename Real>
struct FactorColumns {
  std::vector<Real> shift, delta, factor, bias;

  void Fill(const ColumnStatistics& statistics, const double* weight, const double* bias_of, int64_t columns) {
    const auto size = static_cast<size_t>(columns);
    shift.assign(statistics.shift, statistics.shift + columns);
    delta.assign(statistics.delta_hi, statistics.delta_hi + columns);
    factor.resize(size);
    for (size_t c = 0; c < size; ++c) {
      factor[c] = static_cast<Real>(FactorOf(statistics.inverse_hi[c], weight == nullptr ? 1 : weight[c]));
    }
    if (bias_of == nullptr) {
      bias.assign(size, static_cast<Real>(-0.0));
    } else {
      bias.assign(bias_of, bias_of + columns);
    }
  }
  // The numbers from `column` on; null if Fill was not called.
  ColumnFactors<Real> At(int64_t column) const {
    const ColumnFactors<Real> all = {shift.data(), delta.data(), factor.data(), bias.data()};
    return factor.empty() ? ColumnFactors<Real>() : all.At(column);
  }
};

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_FACTOR_COLUMNS_H_
