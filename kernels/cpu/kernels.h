// The vector kernels of the CPU backend as plain functions: each chooses the instruction set at run time and returns
// the same bits on all of them.
// In the path: between the walkers (run_job.cc, run_rows.cc, run_channels.cc, run_columns.cc), which cut a plan into
// calls, and the kernels themselves (rows.cc, row_blocks.cc, channels.cc, columns.cc, apply.cc, residual.cc), which are
// built from the -inl.h files. Ownership: pointers borrow; any alignment. Threads: no state, safe from any thread.
//
// Values are read as pairs hi + lo, where lo is null but for a residual stream that is kept wide in f64. f64 elements
// are calculated in error-free pairs, so that the bound of 4 ulp holds for any conditioning; narrower elements (f32,
// f16, bf16) are summed in f64, or in f32 for FAST.
#ifndef NORMD_KERNELS_CPU_KERNELS_H_
#define NORMD_KERNELS_CPU_KERNELS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/base/types.h"
#include "kernels/certificate.h"
#include "kernels/group_statistics.h"
#include "kernels/summation_order.h"

namespace normd::cpu {

// The elements of one tensor in memory, or of a part of one. Borrows.
struct Elements {
  DType dtype = DType::kF32;
  const void* data = nullptr;
  const double* lo = nullptr;  // f64 only: the low parts, at the same indices

  // The elements from `index` on.
  Elements At(int64_t index) const {
    return {dtype, static_cast<const char*>(data) + index * SizeOf(dtype), lo == nullptr ? nullptr : lo + index};
  }
};

// ---- Reduce, innermost extent reduced ----

// A statistics group in Pattern::kRows: segments of n elements, `stride` elements apart, whose chunks are those of
// order::ChunkAt.
struct RowChunks {
  Elements x;  // the first element of the group
  int64_t n = 0;
  int64_t segments = 1;
  int64_t stride = 0;
  // One byte for each element, the segments `mask_stride` apart; an element whose byte is 0 is not summed. Null: no
  // mask.
  const uint8_t* mask = nullptr;
  int64_t mask_stride = 0;
};

// What is summed of each element: d = x * scale - shift and d squared (kMeanVariance), (x * scale) squared, or
// |x * scale|; kFast sums narrow elements in f32.
struct Summand {
  Statistic statistic = Statistic::kMeanVariance;
  Precision precision = Precision::kExact;
  double shift = 0;
  double scale = 1;  // a power of two; used for f64 only
};

// Writes sums[chunk] for the chunks [begin, end), in the order of summation_order.h.
void ReduceRowChunks(const Summand& summand, const RowChunks& rows, int64_t begin, int64_t end, PairSums* sums);

// The sums of n <= order::kRowChunk narrow elements about `shift`, and of their squares, of which a term takes part in
// fewer additions than the declared order has, see AdditionsInShallowRows: where y is rounded to the nearest value.
PairSums ReduceShallowly(const Elements& x, int64_t n, double shift);

// The shift for the first sums over elements that begin with these n >= 1: 0 or a value near the mean, see ExactShift;
// for kFast the mean of the first order::kFastPartials elements; 0 if that is not finite. `masked`: the first element,
// which alone is known to count.
double FirstShift(Precision precision, const Elements& x, int64_t n, bool masked);

// The magnitude of n f64 elements. It decides the scale of their squares, and shows which groups cannot be summed in
// pairs because they hold an Inf or a NaN. `mask` may be null.
Magnitude MeasureRow(const double* x, const uint8_t* mask, int64_t n);

// ---- Reduce, innermost extent kept ----

// PowerNorm's scale of one group of channels at one position: x is multiplied by `scale` (a power of two), then by hi +
// lo.
struct PositionScale {
  double scale = 1, hi = 1, lo = 0;
};

// A block of positions in Pattern::kColumns: `positions` rows of `columns` adjacent elements.
struct ColumnBlock {
  Elements x;             // the element at position 0, column 0
  int64_t positions = 0;  // at most order::kColumnBlock
  int64_t columns = 0;
  int64_t stride = 0;                  // elements from one position to the next
  const uint8_t* mask = nullptr;       // one byte per position; null: no mask
  const PositionScale* pre = nullptr;  // PowerNorm: one per position, `pre_stride` apart
  int64_t pre_stride = 1;
  // One per column; for statistics with SumsPowers() the largest |x * scale| of the column's group.
  const double* shift = nullptr;
  const float* shift32 = nullptr;  // the same, for kFast
  const double* scale = nullptr;   // one per column, powers of two, f64 only
  // Four positions are added up first, so that a term takes part in fewer additions than the declared order has. For
  // sums in f64 of which results do not keep the order: where y is rounded to the nearest value.
  bool shallow = false;
};

// The number of doubles in an array for the sums of `columns` columns: ReduceNarrowColumnBlock writes whole vectors.
constexpr int64_t RoomOf(int64_t columns) { return (columns + 15) / 16 * 16; }

// Writes sums[c] for each column c: the sums over the block's positions, in rising order. For f64 elements, and for any
// with `pre`.
void ReduceColumnBlock(Statistic statistic, const ColumnBlock& block, PairSums* sums);

// The same for narrow elements without `pre`, summed in pairs about the shifts, for any number of positions: the sums
// of the differences and of their squares.
void ReduceColumnsInPairs(const ColumnBlock& block, PairSums* sums);

// ReduceColumnBlock for narrow elements without `pre`, summed in f64 (kExact) or f32 (kFast): writes first[c]
// (kMeanVariance only) and second[c], which have RoomOf(columns) elements. Each row of the block is read once, from its
// first column to its last. A null shift is 0.
void ReduceNarrowColumnBlock(Statistic statistic, Precision precision, const ColumnBlock& block, double* first,
                             double* second);

// to[i] += from[i] for n sums. REQUIRES: n is a RoomOf(), or a sum of several.
void AddSums(const double* from, int64_t n, double* to);

// Includes the block in magnitudes[c] for each column c; f64 only.
void MeasureColumns(const ColumnBlock& block, Magnitude* magnitudes);

// ---- Apply ----

// w and b of consecutive elements, each in f64 and in f32. Null: absent, w = 1 and b = 0. Borrows.
struct Parameters {
  const double* weight = nullptr;
  const double* bias = nullptr;
  const float* weight32 = nullptr;
  const float* bias32 = nullptr;
  bool fit_f32 = true;    // see HostParameters
  bool equal_f32 = true;  // see HostParameters

  bool absent() const { return weight == nullptr && bias == nullptr; }
  Parameters At(int64_t index) const {
    return {weight == nullptr ? nullptr : weight + index,
            bias == nullptr ? nullptr : bias + index,
            weight32 == nullptr ? nullptr : weight32 + index,
            bias32 == nullptr ? nullptr : bias32 + index,
            fit_f32,
            equal_f32};
  }
};

// The numbers of adjacent columns or positions for y = ((x - shift) - delta) * factor + b in f32: one array each.
// Borrows.
struct ColumnFactors {
  const float* shift = nullptr;
  const float* delta = nullptr;
  const float* factor = nullptr;  // FactorOf(inverse, w)
  const float* bias = nullptr;    // -0 where b is absent

  // The numbers from `column` on.
  ColumnFactors At(int64_t column) const {
    return shift == nullptr ? ColumnFactors()
                            : ColumnFactors{shift + column, delta + column, factor + column, bias + column};
  }
};

// A call of the apply pass: `positions` rows of `columns` elements. Statistics and parameters are one value for the
// whole span, one for each column, or one for each position.
struct ApplySpan {
  Elements x;
  DType y_dtype = DType::kF32;  // x's dtype, or any where x is f64
  void* y = nullptr;
  int64_t positions = 1;  // rows, `stride` elements apart in x and in y
  int64_t columns = 0;
  int64_t stride = 0;
  // Writes y past the caches, which pays for outputs that do not fit them. See FlushStreams.
  bool stream = false;
  // The distance, in elements, from the elements being read to those to fetch ahead; 0: x is in a cache. Where
  // statistics are per column, any value but 0 fetches the next block of positions.
  int64_t prefetch = 0;

  bool statistics_per_column = false;
  // For narrow elements. REQUIRES: no `stream`, no `prefetch`, AFFINE_THEN_CAST.
  bool statistics_per_position = false;
  const GroupStatistics* statistics = nullptr;          // one, unless per column or position
  const ColumnStatistics* column_statistics = nullptr;  // or positions
  // REQUIRES: given for narrow elements with statistics per column or position, but for PowerNorm.
  ColumnFactors factors;
  // PowerNorm: one per position, `pre_stride` apart. REQUIRES: statistics_per_column.
  const PositionScale* pre = nullptr;
  int64_t pre_stride = 1;
  Centring centring = Centring::kTwice;
  bool may_be_nan = true;  // false: y has no NaN, see FinishedStatistics::finite

  // Parameters are one value for each column, one value for each position (adjacent in memory) where the statistics
  // are, or one value for all.
  bool parameters_per_column = false;
  // If not 0: one value for each run of parameter_run columns; `columns` is a multiple of parameter_run.
  int64_t parameter_run = 0;
  Parameters parameters;
  CastOrder cast_order = CastOrder::kAffineThenCast;
};

// y = ((x * scale - shift) - delta) * inverse * w + b, rounded to y's dtype as the cast order says: f64 elements in
// pairs, narrow ones in f32, as FAST is, and those of PowerNorm in f64. y may be x.
void Apply(const ApplySpan& span);

// ---- Apply, to the nearest value ----

// The numbers of a column, a position or a whole span, as arrays or as one number each.
enum class Along : uint8_t { kNothing, kColumns, kPositions };

// An element that ApplyNearest could not decide, at a place of its span.
struct Undecided {
  int64_t position, column;
  double x;  // the element itself: y may be x, and is written by now
};

// A call of ApplyNearest: `positions` rows of `columns` elements. Borrows.
struct NearestSpan {
  Elements x;
  DType y_dtype = DType::kF32;  // x's dtype, or any where x is f64
  void* y = nullptr;
  int64_t positions = 1;
  int64_t columns = 0;
  int64_t stride = 0;  // elements from one position to the next, in x and in y

  // n = ((x - shift) - delta) * inverse, or x * inverse where nothing is subtracted.
  Along statistics_along = Along::kNothing;
  Centring centring = Centring::kOnce;
  const double* shift = nullptr;
  const double* delta = nullptr;
  const double* inverse = nullptr;
  // Of f64 elements, see GroupStatistics.
  const double* scale = nullptr;
  const double* delta_lo = nullptr;
  const double* inverse_lo = nullptr;
  // The bound of y's error without the rounding of y itself, doubled: fixed + relative * |n w|, see BoundOfElements.
  // Along what the statistics are.
  const double* fixed = nullptr;
  const double* relative = nullptr;
  double rounding = kRoundingOfY;  // what rounding y adds, as a part of |y|

  // w and b; null: absent, w = 1 and b = -0. `parameter_run`, if not 0: parameters along nothing are one value for each
  // run of as many columns.
  Along parameters_along = Along::kNothing;
  int64_t parameter_run = 0;
  const double* weight = nullptr;
  const double* bias = nullptr;
  CastOrder cast_order = CastOrder::kAffineThenCast;

  // Is called with elements that are undecided, n <= kMostUndecided, after their y was written.
  static constexpr int64_t kMostUndecided = 64;
  void (*report)(void* context, const Undecided* elements, int64_t n) = nullptr;
  void* context = nullptr;

  // Makes that a call of `function`, which must outlive the span.
  template <typename Function>
  void ReportTo(Function& function) {
    context = &function;
    report = [](void* of, const Undecided* elements, int64_t n) { (*static_cast<Function*>(of))(elements, n); };
  }
};

// Writes y, each element rounded to nearest where the bound shows which value that is, and reports the other elements.
// The bits do not depend on the instruction set; which elements are reported may.
void ApplyNearest(const NearestSpan& span);

// The numbers of adjacent columns or positions for y = x * factor + offset, of f32 elements, and the bound of y's
// error, fixed + relative * |y|: see BoundOfFolded. Borrows.
struct FoldedNumbers {
  const double* factor = nullptr;
  const double* offset = nullptr;
  const double* fixed = nullptr;  // Inf: decides nothing
  const double* relative = nullptr;

  // The numbers from `index` on.
  FoldedNumbers At(int64_t index) const {
    return factor == nullptr ? FoldedNumbers()
                             : FoldedNumbers{factor + index, offset + index, fixed + index, relative + index};
  }
};

// The same of 16-bit elements, each number as two floats, of which the second is what the first leaves:
//   y = (x * factor + offset) + (x * factor_rest + offset_rest),
// whose error is a few ulps of f32 at y, however much the terms cancel (kernels/cpu/folded_pairs.h). Borrows.
struct FoldedPairs {
  const float* factor = nullptr;
  const float* offset = nullptr;  // NaN: decides nothing
  const float* factor_rest = nullptr;
  const float* offset_rest = nullptr;

  // The numbers from `index` on.
  FoldedPairs At(int64_t index) const {
    return factor == nullptr ? FoldedPairs()
                             : FoldedPairs{factor + index, offset + index, factor_rest + index, offset_rest + index};
  }
};
// What decides an element of FoldedPairs, one for all columns: y is not tiny, and farther from a middle than its bound.
struct PairLimits {
  // As near as -2^near_bits / 2 to 2^near_bits / 2 - 1 ulps of f32; 0: a middle itself; -1: none.
  int near_bits = 0;
  double least = 0;  // |y|; a power of two
};

// The statistics of adjacent columns or channels, and the bounds of their normalised elements (NormalisedBound), as
// arrays of `count` numbers. Borrows.
struct ColumnsToFold {
  int64_t count = 0;
  const double* mean = nullptr;  // null: none is subtracted
  const double* inverse = nullptr;
  const double* beta = nullptr;  // null: 0
  const double* kappa = nullptr;
  const double* weight = nullptr;  // w and b; null: absent
  const double* bias = nullptr;
  double bound_factor = 1;  // see NearestOptions; finite
  DType dtype = DType::kF32;
};

// What FoldColumns makes of them: the numbers of one of the two, and the bounds of ApplyNearest (ElementBound).
struct FoldedArrays {
  double* numbers = nullptr;  // four arrays of `count`, as FoldedNumbers has them: of f32 elements
  float* pairs = nullptr;     // likewise FoldedPairs: of 16-bit elements
  double* fixed = nullptr;
  double* relative = nullptr;
};
// Returns the limits of `pairs`.
PairLimits FoldColumns(const ColumnsToFold& columns, const FoldedArrays& to);

// A call of ApplyNearestQuickly: the elements of `careful`, which says how those are calculated that a quick look does
// not decide. REQUIRES: narrow x, which is not y; AFFINE_THEN_CAST; statistics along columns or positions, and
// parameters along the same or absent.
struct QuickSpan {
  NearestSpan careful;
  FoldedNumbers numbers;  // of f32 elements
  FoldedPairs pairs;      // of 16-bit elements
  PairLimits limits;
  bool stream = false;    // as in ApplySpan
  bool prefetch = false;  // along columns: fetches the next positions
};

// ApplyNearest by way of a quick look at a few elements at once: y in one multiply-add, or two, and whether any of them
// may lie near a middle. Those are calculated again, and what that leaves, by ApplyNearest.
void ApplyNearestQuickly(const QuickSpan& span);

// ---- Statistics that are given ----

// Given statistics of narrow elements, ready for the apply pass, with the bits that GivenStatistics() gives each group.
struct GivenGroups {
  std::vector<double> shift, delta, inverse;  // one for each group
  bool has_delta = false;                     // some delta is not 0
  bool in_f32 = false;                        // elements_in_f32 of all groups

  FinishedStatistics At(int64_t group) const;
};

// The given numbers of n groups.
struct GivenNumbers {
  const double* mean = nullptr;  // null: nothing is subtracted
  const double* variance = nullptr;
  int64_t n = 0;
};

// Prepares the groups at once, in a few cycles for each: calls of inference may have more groups than positions. Absent
// where the groups are not all calculated in the same type, and where they are too few to gain.
std::optional<GivenGroups> PrepareGiven(const DivisorRule& rule, const GivenNumbers& numbers, Precision precision);

// ---- Both passes, adjacent rows ----

// Adjacent rows of n narrow elements. Each row is a statistics group, of which the first `counted` elements enter the
// statistic.
struct RowBlock {
  Elements x;
  void* y = nullptr;
  int64_t rows = 0;  // at most kMaxRows
  int64_t n = 0, counted = 0;
  Statistic statistic = Statistic::kMeanVariance;
  DivisorRule rule;
  Parameters parameters;
  // One w and b for each element of a row; false: one for all, REQUIRES a statistic without a mean.
  bool per_element = true;
  bool stream = false;  // as in ApplySpan
  int64_t prefetch = 0;
  bool wants_results = true;  // false: the results need not be written

  static constexpr int64_t kMaxRows = 16;
  static constexpr int64_t kMaxChunks = 64;  // chunks of a row
};

// Runs both passes under FAST for the rows that bit r of the result names, r being the row: writes y, which may be x,
// and the members mean, m2 and inverse_std of results[row]; the other members are scratch. The y of other rows, whose
// first sums in f32 do not suffice, is not written, and they are left to the caller. REQUIRES: 1 <= counted <=
// kMaxChunks * order::kRowChunk; parameters that fit f32.
uint32_t NormaliseRows(const RowBlock& block, FinishedStatistics* results);

// What rounding the rows of a block to the nearest value takes beside the block. Borrows.
struct NearestRows {
  RowBoundTerms terms;
  QuickBounds quick;                            // in the type of the quick look, times bound_factor
  double largest_weight = 1, largest_bias = 0;  // magnitudes; 1 and 0 where w and b are absent
  double bound_factor = 1;                      // see NearestOptions; finite
  // 16-bit elements about zero are summed in runs, which `quick` allows for. The results are those of sums in f64.
  bool in_runs = false;

  // Is called with each element that is undecided, after its y was written; `position` is its row.
  void (*report)(void* context, const Undecided& element) = nullptr;
  void* context = nullptr;
};

// NormaliseRows() to the nearest value, with sums in f64. y is not x. REQUIRES: counted == n, parameters that fit f32,
// and, for 16-bit elements, parameters that equal f32 and a largest |b| of 2^100.
uint32_t NormaliseRowsToNearest(const RowBlock& block, const NearestRows& nearest, FinishedStatistics* results);

// ---- Reduce, adjacent channels ----

// Adjacent statistics groups of narrow elements with Statistic::kMeanVariance: channel c is `segments` segments of n
// elements, `stride` apart, of which the first begins at x + c * n. REQUIRES: Takes(segments, n).
struct ChannelBlock {
  Elements x;
  int64_t channels = 0;  // at most kMaxChannels
  int64_t n = 0;
  int64_t segments = 1;
  int64_t stride = 0;
  Precision precision = Precision::kExact;
  DivisorRule rule;
  double additions = 0;  // of a channel's sums in f64, see SumErrors

  static constexpr int64_t kMaxChannels = 64;
  static constexpr int64_t kMaxChunks = 1 << 12;
  static constexpr int64_t kMaxShort = order::kFastRowStep;

  // Segments are short, with at most kMaxShort elements, or each of them is one chunk or several.
  static bool Takes(int64_t segments, int64_t n) {
    const bool is_whole = n <= kMaxShort || order::ChunkSegments(n) == 1;
    return is_whole && order::GroupChunks(segments, n) <= kMaxChunks;
  }
};

// The statistics of at most kMaxChannels channels, one array for each member; whole vectors of them are written. Not
// initialised: that would take as long as a short channel.
// A narrow group is settled if its first sums suffice, so that NextRound() asks for no others, and if the sums are
// finite and the statistics fit f32, see FitF32(). Most groups are. The rest have to be finished one by one.
struct ChannelStatistics {
  double shift[ChannelBlock::kMaxChannels], delta[ChannelBlock::kMaxChannels], inverse[ChannelBlock::kMaxChannels];
  double mean[ChannelBlock::kMaxChannels], m2[ChannelBlock::kMaxChannels];
  double beta[ChannelBlock::kMaxChannels], kappa[ChannelBlock::kMaxChannels];  // the bounds of sums in f64
  bool settled[ChannelBlock::kMaxChannels];
};

// Sums each channel of a block once. The members of a settled channel have the bits that FinishNarrow gives them,
// except that a delta of 0 may have either sign; `inverse` is inverse_std, too. The members of other channels mean
// nothing.
void ReduceChannels(const ChannelBlock& block, ChannelStatistics* statistics);

// The sums of adjacent channels about their shifts: arrays of `channels` numbers.
struct SummedChannels {
  int64_t channels = 0;  // at most ChannelBlock::kMaxChannels
  int64_t count = 0;     // elements of a channel
  const double* shift = nullptr;
  const double* first = nullptr;
  const double* second = nullptr;
  Precision precision = Precision::kExact;
  DivisorRule rule;
  double additions = 0;  // as in ChannelBlock
};

// Finishes channels as ReduceChannels does after the sums.
void FinishChannels(const SummedChannels& channels, ChannelStatistics* statistics);

// Makes streamed stores visible to other threads. Call it once at the end of a task that streams, because it waits for
// memory.
void FlushStreams();

// ---- Elementwise ----

// The sums x[i] + scale * r[i] of n elements. `r` may have another dtype than x.
struct ResidualSum {
  Elements x, r;
  double scale = 1;
  int64_t n = 0;
};

// h[i] = the sum, rounded once to x's dtype (ROUND_FIRST). `h` has x's dtype.
void AddResidualRounded(const ResidualSum& sum, void* h);

// The same kept wide (KEEP_WIDE): hi[i] + lo[i] for f64 x, hi[i] for narrower x, where `lo` is null.
void AddResidualWide(const ResidualSum& sum, double* hi, double* lo);

// y[i] = x[i] as f64, exactly.
void ConvertToF64(const Elements& x, int64_t n, double* y);

// y[i] = x[i] rounded to `dtype`.
void ConvertFromF64(const double* x, int64_t n, DType dtype, void* y);

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_KERNELS_H_
