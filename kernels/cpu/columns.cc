// Reduce where the innermost extent is kept: one block of positions, a vector of neighbouring columns at a time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/columns.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
#include "hwy/highway.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
using cpu::ColumnBlock;
using cpu::PositionScale;

// Vectors of columns that one sweep over the positions keeps in registers: whole cache lines of f32 on AVX-512 and
// AVX2.
inline constexpr int64_t kTileVectors = 4;

// The sums of columns [column, column + kVectors * kLanes), of which `count` exist.
template <Statistic kStatistic, bool kPre, int64_t kVectors, typename T, typename Sums>
HWY_INLINE void SumTile(T tag, TypeTag<Sums> /*type*/, const ColumnBlock& block, int64_t column, int64_t count,
                        PairSums* HWY_RESTRICT out) {
  const auto* HWY_RESTRICT data = static_cast<const typename T::Storage*>(block.x.data) + column;
  V shift[kVectors];
  V scale[kVectors];
  Sums sums[kVectors];
  for (int64_t k = 0; k < kVectors; ++k) {
    const int64_t left = count - k * kLanes;
    const int64_t at = column + k * kLanes;
    sums[k].Clear();
    shift[k] = block.shift == nullptr ? Zero() : LoadUpTo(F64(), block.shift + at, left);
    scale[k] = block.scale == nullptr ? Set(1.0) : LoadUpTo(F64(), block.scale + at, left);
  }
  for (int64_t p = 0; p < block.positions; ++p) {
    if (block.mask != nullptr && block.mask[p] == 0) continue;  // adding 0 would change nothing
    const int64_t row = p * block.stride;
    for (int64_t k = 0; k < kVectors; ++k) {
      const int64_t left = count - k * kLanes;
      const int64_t at = row + k * kLanes;
      const V lo = block.x.lo == nullptr ? Zero() : LoadUpTo(F64(), block.x.lo + column + at, left);
      const V value = LoadUpTo(tag, data + at, left);
      if constexpr (kPre) {
        const PositionScale& pre = block.pre[p * block.pre_stride];
        sums[k].template Take<kStatistic>(Sums::Times(Sums::Read(value, lo, Set(pre.scale)), Set(pre.hi), Set(pre.lo)));
      } else {
        const auto read = Sums::Read(value, lo, scale[k]);
        sums[k].template Take<kStatistic>(kStatistic == Statistic::kMeanVariance ? Sums::Subtract(read, shift[k])
                                                                                 : read);
      }
    }
  }
  for (int64_t k = 0; k < kVectors; ++k) {
    HWY_ALIGN double lanes[4][kLanes] = {};
    const auto store = [&](V v, int64_t i) HWY_ATTR { hn::Store(v, d, lanes[i]); };
    const auto store_pair = [&](const auto& value, int64_t i) HWY_ATTR {
      if constexpr (std::is_same_v<Sums, WideSums>) {
        store(value.hi, i);
        store(value.lo, i + 1);
      } else {
        store(value, i);
      }
    };
    store_pair(sums[k].first, 0);
    store_pair(sums[k].second, 2);
    for (int64_t lane = 0; lane < HWY_MIN(kLanes, count - k * kLanes); ++lane) {
      out[column + k * kLanes + lane] = {{lanes[0][lane], lanes[1][lane]}, {lanes[2][lane], lanes[3][lane]}};
    }
  }
}

template <Statistic kStatistic, bool kPre>
void SumColumns(const ColumnBlock& block, PairSums* out) {
  WithElementType(block.x.dtype, [&](auto tag, auto sums) HWY_ATTR {
    constexpr int64_t kTile = kTileVectors * kLanes;
    int64_t column = 0;
    for (; column + kTile <= block.columns; column += kTile) {
      SumTile<kStatistic, kPre, kTileVectors>(tag, sums, block, column, kTile, out);
    }
    for (; column < block.columns; column += kLanes) {
      SumTile<kStatistic, kPre, 1>(tag, sums, block, column, HWY_MIN(kLanes, block.columns - column), out);
    }
  });
}

void ReduceColumnBlock(Statistic statistic, const ColumnBlock& block, PairSums* sums) {
  if (block.pre != nullptr) return SumColumns<Statistic::kMeanSquare, true>(block, sums);
  switch (statistic) {
    case Statistic::kMeanVariance:
      return SumColumns<Statistic::kMeanVariance, false>(block, sums);
    case Statistic::kAbsSum:
      return SumColumns<Statistic::kAbsSum, false>(block, sums);
    case Statistic::kMeanSquare:
    case Statistic::kSumSquares:
      return SumColumns<Statistic::kMeanSquare, false>(block, sums);
  }
}

void MeasureColumns(const ColumnBlock& block, Magnitude* magnitudes) {
  for (int64_t column = 0; column < block.columns; column += kLanes) {
    const int64_t count = HWY_MIN(kLanes, block.columns - column);
    MagnitudeLanes lanes;
    lanes.Clear();
    for (int64_t p = 0; p < block.positions; ++p) {
      if (block.mask != nullptr && block.mask[p] == 0) continue;
      lanes.Take(LoadUpTo(F64(), static_cast<const double*>(block.x.data) + p * block.stride + column, count));
    }
    Magnitude all[kLanes];
    lanes.Store(all);
    for (int64_t lane = 0; lane < count; ++lane) magnitudes[column + lane].Include(all[lane]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normd::cpu {
HWY_EXPORT(ReduceColumnBlock);
HWY_EXPORT(MeasureColumns);

void ReduceColumnBlock(Statistic statistic, const ColumnBlock& block, PairSums* sums) {
  HWY_DYNAMIC_DISPATCH(ReduceColumnBlock)(statistic, block, sums);
}
void MeasureColumns(const ColumnBlock& block, Magnitude* magnitudes) {
  HWY_DYNAMIC_DISPATCH(MeasureColumns)(block, magnitudes);
}
}  // namespace normd::cpu
#endif  // HWY_ONCE
