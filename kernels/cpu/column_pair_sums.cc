// Sums in pairs of adjacent columns of f32, at little more than the cost of plain sums. A block of positions is summed
// without rounding in three f64 bins a column (kernels/cpu/exact_sums_bins.h), and what these hold is added to pairs.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/column_pair_sums.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/column_pair_sums.h"
#include "kernels/cpu/exact_sums_bins.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
using cpu::FloatColumns;

// The positions of a block, and the columns of a vector of f32, two of which a block has side by side.
inline constexpr int kLogBlock = 7;
inline constexpr int64_t kBlock = int64_t{1} << kLogBlock;
inline constexpr int64_t kFloats = kLanesOf<float>;
inline constexpr int64_t kWidth = 2 * kFloats;
inline constexpr int64_t kVectors = kWidth / kLanes;
// The columns whose sums stay in L1.
inline constexpr int64_t kStrip = 512;

// A pair of f64 in each lane.
struct PairLanes {
  V hi, lo;

  // As Add() of kernels/pairs.h.
  HWY_INLINE void Add(V other_hi, V other_lo) {
    const V sum = hn::Add(hi, other_hi);
    const V of_other = hn::Sub(sum, hi);
    const V error = hn::Add(hn::Sub(hi, hn::Sub(sum, of_other)), hn::Sub(other_hi, of_other));
    const V low = hn::Add(error, hn::Add(lo, other_lo));
    hi = hn::Add(sum, low);
    lo = hn::Sub(low, hn::Sub(hi, sum));
  }
};

// x^2 - y, which is exact here.
HWY_INLINE V SquareLess(V x, V y) {
#if HWY_NATIVE_FMA
  return hn::MulSub(x, x, y);
#else
  return hn::Sub(hn::Mul(x, x), y);  // x^2 has 48 bits
#endif
}

struct StripSums {
  HWY_ALIGN double first[2][kStrip], second[2][kStrip];  // high parts and low parts
};
HWY_INLINE void AddTo(double (*sums)[kStrip], int64_t column, V hi, V lo) {
  PairLanes pair = {hn::Load(d, sums[0] + column), hn::Load(d, sums[1] + column)};
  pair.Add(hi, lo);
  hn::Store(pair.hi, d, sums[0] + column);
  hn::Store(pair.lo, d, sums[1] + column);
}

// A block of kWidth columns of `positions` positions.
struct PairBlock {
  const float* x;  // any alignment
  int64_t positions, stride;
  bool fetches_next;  // the block of the same columns after this one exists
};

// The sums of a block whose bins serve its exponents. The bin of the squares begins with 2^(2 top + kLogBlock), which
// is at least the sum of the squares and twice as large as the bin of ExactBins needs: their rests are multiples of
// 2^(2 unit) under 2^(2 top + kLogBlock - 52), and the condition of kNear, unit >= top + kLogBlock - 53, makes the sums
// of kBlock rests exact, too.
HWY_INLINE void SumBlock(const PairBlock& block, uint32_t largest, int64_t column, StripSums* sums) {
  const int top = static_cast<int>(largest >> 23) - 126;
  const V anchor = Set(std::ldexp(1.0, 2 * top + kLogBlock));
  V first[kVectors], second[kVectors], rests[kVectors];
  for (int64_t k = 0; k < kVectors; ++k) {
    first[k] = rests[k] = Zero();
    second[k] = anchor;
  }
  const float* x = block.x;
  for (int64_t p = 0; p < block.positions; ++p, x += block.stride) {
    if (block.fetches_next) {
      for (int64_t at = 0; at < kWidth; at += 16) hwy::Prefetch(x + kBlock * block.stride + at);
    }
    for (int64_t k = 0; k < kVectors; ++k) {
      const V value = LoadAs<double>(F32(), x + k * kLanes);
      first[k] = AddBesideConversions(value, first[k]);
      const V sum = Fma(value, value, second[k]);
      const V taken = hn::Sub(sum, second[k]);
      second[k] = sum;
      rests[k] = hn::Add(rests[k], SquareLess(value, taken));
    }
  }
  for (int64_t k = 0; k < kVectors; ++k) {
    AddTo(sums->first, column + k * kLanes, first[k], Zero());
    const V high = hn::Sub(second[k], anchor);
    const V hi = hn::Add(high, rests[k]);
    AddTo(sums->second, column + k * kLanes, hi, hn::Sub(rests[k], hn::Sub(hi, high)));
  }
}

// The same for other exponents: in pairs throughout, eight partial sums of 16 terms each.
HWY_NOINLINE void SumBlockInPairs(const PairBlock& block, int64_t column, StripSums* sums) {
  constexpr int64_t kPart = 16;
  for (int64_t k = 0; k < kVectors; ++k) {
    PairLanes all_first = {Zero(), Zero()};
    PairLanes all_second = all_first;
    for (int64_t begin = 0; begin < block.positions; begin += kPart) {
      PairLanes first = {Zero(), Zero()};
      PairLanes second = first;
      for (int64_t p = begin; p < HWY_MIN(block.positions, begin + kPart); ++p) {
        const V value = LoadAs<double>(F32(), block.x + p * block.stride + k * kLanes);
        first.Add(value, Zero());
        second.Add(hn::Mul(value, value), Zero());  // 48 bits, exact
      }
      all_first.Add(first.hi, first.lo);
      all_second.Add(second.hi, second.lo);
    }
    AddTo(sums->first, column + k * kLanes, all_first.hi, all_first.lo);
    AddTo(sums->second, column + k * kLanes, all_second.hi, all_second.lo);
  }
}

// Adds a block to the sums from `column` on. False if an element is not finite.
HWY_INLINE bool AddBlock(const PairBlock& block, int64_t column, StripSums* sums) {
  using Words = hn::RebindToUnsigned<Tag<float>>;
  const auto magnitude = hn::Set(Words(), 0x7FFFFFFFu);
  const auto one = hn::Set(Words(), 1u);
  auto largest = hn::Zero(Words());
  auto least = hn::Set(Words(), ~uint32_t{0});
  const float* x = block.x;
  for (int64_t p = 0; p < block.positions; ++p, x += block.stride) {
    for (int64_t at = 0; at < kWidth; at += kFloats) {
      const auto bits = hn::And(hn::BitCast(Words(), hn::LoadU(Tag<float>(), x + at)), magnitude);
      largest = hn::Max(largest, bits);
      least = hn::Min(least, hn::Sub(bits, one));
    }
  }
  const uint32_t most = hn::GetLane(hn::MaxOfLanes(Words(), largest));
  if (!ExactBins::IsFinite(most)) return false;
  if (most == 0) return true;
  const uint32_t fewest = hn::GetLane(hn::MinOfLanes(Words(), least));
  if (ExactBins::Of(most, fewest, kLogBlock, 24, -149).kind == ExactBins::Kind::kNear) {
    SumBlock(block, most, column, sums);
  } else {
    SumBlockInPairs(block, column, sums);
  }
  return true;
}

// The last columns, fewer than kWidth, with zeros beside them.
HWY_NOINLINE bool AddLastColumns(const PairBlock& block, int64_t columns, int64_t column, StripSums* sums) {
  HWY_ALIGN float copy[kBlock * kWidth] = {};
  for (int64_t p = 0; p < block.positions; ++p) {
    std::memcpy(copy + p * kWidth, block.x + p * block.stride, static_cast<size_t>(columns) * sizeof(float));
  }
  return AddBlock({copy, block.positions, kWidth, false}, column, sums);
}

bool SumFloatColumns(const FloatColumns& columns, PairSums* totals) {
  for (int64_t strip = 0; strip < columns.columns; strip += kStrip) {
    const int64_t width = HWY_MIN(kStrip, columns.columns - strip);
    StripSums sums = {};
    for (int64_t begin = 0; begin < columns.positions; begin += kBlock) {
      const int64_t positions = HWY_MIN(kBlock, columns.positions - begin);
      const bool fetches_next = begin + 2 * kBlock <= columns.positions;
      for (int64_t c = 0; c < width; c += kWidth) {
        const PairBlock block = {columns.x + begin * columns.stride + strip + c, positions, columns.stride,
                                 fetches_next};
        const bool is_finite =
            width - c >= kWidth ? AddBlock(block, c, &sums) : AddLastColumns(block, width - c, c, &sums);
        if (!is_finite) return false;
      }
    }
    for (int64_t c = 0; c < width; ++c) {
      totals[strip + c] = {{sums.first[0][c], sums.first[1][c]}, {sums.second[0][c], sums.second[1][c]}};
    }
  }
  return true;
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normd::cpu {
HWY_EXPORT(SumFloatColumns);

bool SumInPairs(const FloatColumns& columns, PairSums* sums) {
  return HWY_DYNAMIC_DISPATCH(SumFloatColumns)(columns, sums);
}
}  // namespace normd::cpu
#endif  // HWY_ONCE
