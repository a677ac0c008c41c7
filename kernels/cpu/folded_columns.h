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
    const bool in_f32 = columns.dtype != DType::kF32;
    if (in_f32) {
      numbers32_ = std::make_unique_for_overwrite<float[]>(room);
    } else {
      numbers_ = std::make_unique_for_overwrite<double[]>(room);
    }
    bounds_ = std::make_unique_for_overwrite<double[]>(static_cast<size_t>(2 * count_));
    FoldColumns(columns, {numbers_.get(), numbers32_.get(), bounds_.get(), bounds_.get() + count_});
  }

  // Sets the numbers of a span whose first column, or position, is `column`.
  void AddTo(int64_t column, QuickSpan* span) const {
    span->numbers = Of(numbers_.get()).At(column);
    span->numbers32 = Of(numbers32_.get()).At(column);
    span->careful.fixed = bounds_.get() + column;
    span->careful.relative = bounds_.get() + count_ + column;
  }

 private:
  template <typename Real>
  FoldedNumbers<Real> Of(const Real* values) const {
    if (values == nullptr) return {};
    return {values, values + count_, values + 2 * count_, values + 3 * count_};
  }

  const int64_t count_;
  std::unique_ptr<double[]> numbers_;
  std::unique_ptr<float[]> numbers32_;
  std::unique_ptr<double[]> bounds_;  // of ApplyNearest
};

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_FOLDED_COLUMNS_H_
