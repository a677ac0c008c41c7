// The vector kernels of the CPU backend as plain functions: each chooses the instruction set at run time and returns
// the same bits on all of them. Between backend.cc, which walks plans, and the -inl.h building blocks. Pointers borrow;
// any alignment. Reentrant; no state.
//
// Values are read as pairs hi + lo: lo is null but for a residual stream kept wide in f64. Where a dtype is f64 all
// arithmetic is in error-free pairs, so that the bound of 4 ulp holds for any conditioning; narrower types are summed
// in f64, and in f32 for FAST.
#ifndef NORMD_KERNELS_CPU_KERNELS_H_
#define NORMD_KERNELS_CPU_KERNELS_H_

#include <cstdint>

#include "kernels/base/types.h"
#include "kernels/group_statistics.h"

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

// A statistics group: `n` elements of each of its segments, `stride` apart, cut into chunks of order::kRowChunk that
// are numbered through the segments.
struct RowChunks {
  Elements x;  // the first of the group
  int64_t n = 0;
  int64_t stride = 0;
  const uint8_t* mask = nullptr;  // one byte an element of a segment, the segments `mask_stride` apart; 0 counts as 0
  int64_t mask_stride = 0;
};

// sums[chunk] of the chunks [begin, end): (x * scale - shift) and its square (kMeanVariance), x * scale squared, or
// |x * scale|, in the order of summation_order.h. `scale` is a power of two and is used for f64 only. kFast sums narrow
// elements in f32.
void ReduceRowChunks(Statistic statistic, Precision precision, const RowChunks& rows, int64_t begin, int64_t end,
                     double shift, double scale, PairSums* sums);

// The shift of a first pass over elements that begin with these n >= 1, finite: the first, or for kFast the mean of up
// to order::kFastPartials. `masked`: the first alone counts.
double FirstShift(Precision precision, const Elements& x, int64_t n, bool masked);

// How large f64 elements are: decides the scale of their squares and finds groups that have no sums in pairs.
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
  const double* shift = nullptr;  // one a column; where powers are summed the largest |x| of its group, scaled
  const double* scale = nullptr;  // one a column, powers of two, f64 only
};

// sums[c] over the block's positions, in rising order. For f64, or with `pre`.
void ReduceColumnBlock(Statistic statistic, const ColumnBlock& block, PairSums* sums);

// The same for narrow elements without `pre`, in f64 or f32: first[c] (kMeanVariance only) and second[c]. A row of the
// block is read once, in one go.
void ReduceNarrowColumnBlock(Statistic statistic, Precision precision, const ColumnBlock& block, double* first,
                             double* second);

// magnitudes[c] takes in the block, f64 only.
void MeasureColumns(const ColumnBlock& block, Magnitude* magnitudes);

// ---- Apply ----

// w and b of consecutive elements, each in f64 and, for FAST, in f32. Null: absent, 1 and 0.
struct Parameters {
  const double* weight = nullptr;
  const double* bias = nullptr;
  const float* weight32 = nullptr;
  const float* bias32 = nullptr;
  bool fit_f32 = true;  // see HostParameters

  bool absent() const { return weight == nullptr && bias == nullptr; }
  Parameters At(int64_t index) const {
    return {weight == nullptr ? nullptr : weight + index, bias == nullptr ? nullptr : bias + index,
            weight32 == nullptr ? nullptr : weight32 + index, bias32 == nullptr ? nullptr : bias32 + index, fit_f32};
  }
};

// Statistics and parameters of the elements of a span: one value for all of it, or one per element.
struct ApplySpan {
  Elements x;
  DType y_dtype = DType::kF32;  // x's dtype, or any where x is f64
  void* y = nullptr;
  int64_t positions = 1;  // rows of `columns` elements, `stride` apart in x and y
  int64_t columns = 0;
  int64_t stride = 0;
  bool stream = false;  // y past the caches: worth it for outputs that do not fit them; see FlushStreams
  // Elements from those that are read to those that will be next; 0: they are in a cache. Per column: 0 or not.
  int64_t prefetch = 0;

  bool statistics_per_column = false;
  const GroupStatistics* statistics = nullptr;  // one, when not per column
  const ColumnStatistics* column_statistics = nullptr;
  const PositionScale* pre = nullptr;  // PowerNorm: one a position, `pre_stride` apart; needs statistics_per_column
  int64_t pre_stride = 1;
  bool in_f32 = false;  // narrow elements are calculated in f32, else in f64
  Centring centring = Centring::kTwice;
  bool may_be_nan = true;  // false: known that there is none, see FinishedStatistics::finite

  // Parameters: per column, or one value a position (stride 1 between positions when per_position, else one for all).
  bool parameters_per_column = false;
  bool parameters_per_position = false;
  int64_t parameter_run = 0;  // not 0: one value for so many columns each, of which a position has a multiple
  Parameters parameters;
  CastOrder cast_order = CastOrder::kAffineThenCast;
};

// y = ((x * scale - shift) - delta) * inverse * w + b, rounded to y's dtype as the cast order says.
void Apply(const ApplySpan& span);

// ---- Both halves, rows that lie one after the other ----

// `rows` rows of n narrow elements, each its own set of which the first `counted` enter the statistic.
struct RowBlock {
  Elements x;
  void* y = nullptr;
  int64_t rows = 0;  // at most kMaxRows
  int64_t n = 0, counted = 0;
  Statistic statistic = Statistic::kMeanVariance;
  Precision precision = Precision::kExact;
  DivisorRule rule;
  Parameters parameters;  // one an element of a row
  bool stream = false;    // as in ApplySpan
  int64_t prefetch = 0;

  static constexpr int64_t kMaxRows = 16;
  static constexpr int64_t kMaxChunks = 16;  // of a row
};

// results[row] as Finish makes them, and y. REQUIRES: 1 <= counted <= kMaxChunks * order::kRowChunk.
void NormaliseRows(const RowBlock& block, FinishedStatistics* results);

// Makes what was streamed visible to other threads: once at the end of a task, as it waits for the memory.
void FlushStreams();

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
