// The vector kernels of the CPU backend as plain functions: each chooses the instruction set at run time and returns
// the same bits on all of them. Between backend.cc, which walks plans, and the -inl.h building blocks. Pointers borrow;
// any alignment. Reentrant; no state.
//
// Values are read as pairs hi + lo: lo is null but for a residual stream kept wide in f64. Where a dtype is f64 all
// arithmetic is in error-free pairs, so that the bound of 4 ulp holds for any conditioning; narrower types need f64
// only.
#ifndef NORMD_KERNELS_CPU_KERNELS_H_
#define NORMD_KERNELS_CPU_KERNELS_H_

#include <cstdint>

#include "kernels/norm.h"
#include "kernels/set_statistics.h"
#include "kernels/tensor.h"

namespace normd::cpu {

// Elements of one tensor in memory.
struct Elements {
  DType dtype = DType::kF32;
  const void* data = nullptr;
  const double* lo = nullptr;  // f64 only: the low halves, same indices

  Elements At(int64_t index) const {
    return {dtype, static_cast<const char*>(data) + index * SizeOf(dtype), lo == nullptr ? nullptr : lo + index};
  }
};

// ---- Reduce, innermost extent reduced ----

// Sums over n <= order::kRowChunk contiguous elements of (x * scale - shift) and its square (kMeanVariance), of x *
// scale squared, or of |x * scale|, in the order of order.h. Elements whose mask byte is 0 count as exactly 0. `scale`
// is a power of two and is used for f64 only.
PairSums ReduceRowChunk(Statistic statistic, const Elements& x, const uint8_t* mask, int64_t n, double shift,
                        double scale);

// How large f64 elements are: decides the scale of their squares and finds sets that have no sums in pairs.
Magnitude MeasureRow(const double* x, const uint8_t* mask, int64_t n);

// ---- Reduce, innermost extent kept ----

// PowerNorm's group scale of a position: x is multiplied by `scale` (a power of two), then by hi + lo.
struct PositionScale {
  double scale = 1, hi = 1, lo = 0;
};

struct ColumnBlock {
  Elements x;             // position 0, column 0
  int64_t positions = 0;  // at most order::kColumnBlock
  int64_t columns = 0;
  int64_t stride = 0;                  // elements from a position to the next
  const uint8_t* mask = nullptr;       // one byte a position
  const PositionScale* pre = nullptr;  // one a position, `pre_stride` apart
  int64_t pre_stride = 1;
  const double* shift = nullptr;  // one a column
  const double* scale = nullptr;  // one a column, powers of two, f64 only
};

// sums[c] over the block's positions, in rising order.
void ReduceColumnBlock(Statistic statistic, const ColumnBlock& block, PairSums* sums);

// magnitudes[c] takes in the block, f64 only.
void MeasureColumns(const ColumnBlock& block, Magnitude* magnitudes);

// ---- Apply ----

// Statistics and parameters of the elements of a span: one value for all of it, or one per element.
struct ApplySpan {
  Elements x;
  DType y_dtype = DType::kF32;  // x's dtype, or any where x is f64
  void* y = nullptr;
  int64_t positions = 1;  // rows of `columns` elements, `stride` apart in x and y
  int64_t columns = 0;
  int64_t stride = 0;

  bool statistics_per_column = false;
  const SetStatistics* statistics = nullptr;  // one, when not per column
  const ColumnStatistics* column_statistics = nullptr;
  const PositionScale* pre = nullptr;  // PowerNorm: one a position, `pre_stride` apart; needs statistics_per_column
  int64_t pre_stride = 1;

  // Parameters: per column, or one value a position (stride 1 between positions when per_position, else one for all).
  bool parameters_per_column = false;
  bool parameters_per_position = false;
  const double* weight = nullptr;  // null: 1
  const double* bias = nullptr;    // null: 0
  CastOrder cast_order = CastOrder::kAffineThenCast;
};

// y = ((x * scale - shift) - delta) * inverse * w + b, rounded to y's dtype as the cast order says.
void Apply(const ApplySpan& span);

// ---- Elementwise ----

// h = x + scale * r. ROUND_FIRST: one rounding to x's dtype, into h (x's dtype). Runs over n elements.
void AddResidualRounded(const Elements& x, const Elements& r, double scale, int64_t n, void* h);

// The same kept wide: hi (and lo, for f64 x; else null) as f64.
void AddResidualWide(const Elements& x, const Elements& r, double scale, int64_t n, double* hi, double* lo);

// y[i] = x[i] as f64, exactly.
void ConvertToF64(const Elements& x, int64_t n, double* y);

// y[i] = x[i] rounded to `dtype`.
void ConvertFromF64(const double* x, int64_t n, DType dtype, void* y);

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_KERNELS_H_
