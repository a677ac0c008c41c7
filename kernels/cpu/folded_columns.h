// The numbers of adjacent columns, or of channels, for ApplyNearestQuickly, made of their statistics and parameters.
// In the path: the walkers (run_channels.cc, nearest_tile.cc) make them once for many calls. Owns its numbers; threads
// only read them.
#ifndef NORMD_KERNELS_CPU_FOLDED_COLUMNS_H_
#define NORMD_KERNELS_CPU_FOLDED_COLUMNS_H_

#include <cstdint>
#include <memory>

#include "kernels/cpu/kernels.h"

namespace normd::cpu {

class FoldedColumns {
 public:
  explicit FoldedColumns(const ColumnsToFold& columns) : count_(columns.count) {
    const auto room = static_cast<size_t>(4 * count_);
    if (columns.dtype != DType::kF32) {
      pairs_ = std::make_unique_for_overwrite<float[]>(room);
    } else {
      numbers_ = std::make_unique_for_overwrite<double[]>(room);
    }
    bounds_ = std::make_unique_for_overwrite<double[]>(static_cast<size_t>(2 * count_));
    limits_ = FoldColumns(columns, {numbers_.get(), pairs_.get(), bounds_.get(), bounds_.get() + count_});
  }

  // Sets the numbers of a span whose first column, or position, is `column`.
  void AddTo(int64_t column, QuickSpan* span) const {
    span->numbers = Of<FoldedNumbers>(numbers_.get()).At(column);
    span->pairs = Of<FoldedPairs>(pairs_.get()).At(column);
    span->limits = limits_;
    span->careful.fixed = bounds_.get() + column;
    span->careful.relative = bounds_.get() + count_ + column;
  }

 private:
  template <typename Numbers, typename Real>
  Numbers Of(const Real* values) const {
    if (values == nullptr) return {};
    return {values, values + count_, values + 2 * count_, values + 3 * count_};
  }

  const int64_t count_;
  std::unique_ptr<double[]> numbers_;
  std::unique_ptr<float[]> pairs_;
  PairLimits limits_;
  std::unique_ptr<double[]> bounds_;  // of ApplyNearest
};

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_FOLDED_COLUMNS_H_
