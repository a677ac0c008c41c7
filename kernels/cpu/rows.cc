// The reduce pass of Pattern::kRows (the innermost extent is reduced): the sums of the chunks of a statistics group.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
#include "hwy/highway.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/row_sums-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
using cpu::Elements;
using cpu::RowChunks;
using cpu::Summand;

template <Statistic kStatistic, typename T, typename Sums>
void SumChunks(const Summand& summand, const RowChunks& rows, int64_t begin, int64_t end, PairSums* sums) {
  const bool shifted = kStatistic == Statistic::kMeanVariance && kMayLackShift<Sums> && summand.shift != 0;
  if (begin >= end) return;  // a group without elements has no chunk
  order::Chunk chunk = order::ChunkAt(rows.segments, rows.n, begin);
  for (int64_t i = begin; i < end; ++i) {
    if (i > begin) chunk = order::ChunkAfter(chunk, rows.segments, rows.n);
    RowChunks from = rows;
    from.x = rows.x.At(chunk.segment * rows.stride + chunk.at);
    from.n = chunk.length;
    from.segments = chunk.segments;
    if (rows.mask != nullptr) from.mask += chunk.segment * rows.mask_stride + chunk.at;
    const bool in_steps = std::is_same_v<typename Sums::Real, float> && chunk.segments > 1;
    sums[i] = rows.mask == nullptr && !shifted && !in_steps
                  ? SumChunk<kStatistic, false>(T(), TypeTag<Sums>(), from, summand.shift, summand.scale)
                  : SumChunk<kStatistic, true>(T(), TypeTag<Sums>(), from, summand.shift, summand.scale);
  }
}

template <Statistic kStatistic>
void SumChunksOf(const Summand& summand, const RowChunks& rows, int64_t begin, int64_t end, PairSums* sums) {
  if (summand.precision == Precision::kFast) {
    return WithNarrowType(rows.x.dtype, [&](auto tag) HWY_ATTR {
      SumChunks<kStatistic, decltype(tag), NarrowSums<float>>(summand, rows, begin, end, sums);
    });
  }
  WithElementType(rows.x.dtype, [&](auto tag, auto type) HWY_ATTR {
    SumChunks<kStatistic, decltype(tag), typename decltype(type)::Type>(summand, rows, begin, end, sums);
  });
}

void ReduceRowChunks(const Summand& summand, const RowChunks& rows, int64_t begin, int64_t end, PairSums* sums) {
  switch (summand.statistic) {
    case Statistic::kMeanVariance:
      return SumChunksOf<Statistic::kMeanVariance>(summand, rows, begin, end, sums);
    case Statistic::kAbsSum:
      return SumChunksOf<Statistic::kAbsSum>(summand, rows, begin, end, sums);
    case Statistic::kMeanSquare:
    case Statistic::kSumSquares:
    case Statistic::kPowerSum:  // its terms are summed as kAbsSum
    case Statistic::kMaxAbs:    // has no sums
      break;
  }
  SumChunksOf<Statistic::kMeanSquare>(summand, rows, begin, end, sums);
}

double FirstShift(Precision precision, const Elements& x, int64_t n, bool masked) {
  return WithElementType(x.dtype, [&](auto tag, auto /*sums*/) HWY_ATTR {
    return ShiftOf(tag, precision, static_cast<const typename decltype(tag)::Storage*>(x.data), n, masked);
  });
}

Magnitude MeasureRow(const double* x, const uint8_t* mask, int64_t n) {
  MagnitudeLanes lanes;
  lanes.Clear();
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t count = HWY_MIN(kLanes, n - i);
    V value = LoadUpTo(F64(), x + i, count);
    if (mask != nullptr) {
      uint8_t bytes[kLanes] = {};
      std::memcpy(bytes, mask + i, static_cast<size_t>(count));
      value = hn::IfThenElseZero(LoadMaskBytes<double>(bytes), value);
    }
    lanes.Take(value);
  }
  Magnitude all[kLanes];
  lanes.Store(all);
  for (int64_t i = 1; i < kLanes; ++i) all[0].Include(all[i]);
  return all[0];
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normd::cpu {
HWY_EXPORT(ReduceRowChunks);
HWY_EXPORT(FirstShift);
HWY_EXPORT(MeasureRow);

void ReduceRowChunks(const Summand& summand, const RowChunks& rows, int64_t begin, int64_t end, PairSums* sums) {
  HWY_DYNAMIC_DISPATCH(ReduceRowChunks)(summand, rows, begin, end, sums);
}
double FirstShift(Precision precision, const Elements& x, int64_t n, bool masked) {
  return HWY_DYNAMIC_DISPATCH(FirstShift)(precision, x, n, masked);
}
Magnitude MeasureRow(const double* x, const uint8_t* mask, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(MeasureRow)(x, mask, n);
}
}  // namespace normd::cpu
#endif  // HWY_ONCE
