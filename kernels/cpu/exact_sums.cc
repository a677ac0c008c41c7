// Exact sums of x and x^2. A block of a channel is summed in a few f64 bins: the first takes of each x^2 what is a
// multiple of a grid, so coarse that the sum of a block has no rounding, and the next one takes the exact rest. The
// grids follow from the largest |x| of the block, and its least |x| tells whether the last rest fits, too. The bins are
// then added to integers.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/exact_sums.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/exact_sums.h"
#include "kernels/cpu/simd-inl.h"

#ifndef NORMD_KERNELS_CPU_EXACT_SUMS_CC_
#define NORMD_KERNELS_CPU_EXACT_SUMS_CC_
namespace normd {

// The blocks. More elements make the range of exponents of the fast loop smaller, by one for a factor of 2, and fewer
// have the bins emptied more often.
inline constexpr int kLogRowBlock = 10, kLogColumnBlock = 9;
inline constexpr int64_t kRowBlock = int64_t{1} << kLogRowBlock, kColumnPositions = int64_t{1} << kLogColumnBlock;

// The bins of a block of 2^log_terms elements under 2^top. Adding an anchor of 1.5 * 2^(grid + 52) and subtracting it
// again rounds to multiples of 2^grid, and sums of these are exact up to 2^(grid + 53).
struct ExactBins {
  enum class Kind : uint8_t { kNear, kSpread, kSingle };

  Kind kind = Kind::kNear;
  double of_sum = 0;  // anchors: kSpread alone
  double of_squares = 0, of_rest = 0;

  // The largest |x| and the least that is not 0, less 1, as bits of f32; the least is ~0 if all are 0.
  static ExactBins Of(uint32_t largest, uint32_t least_less_1, int log_terms, int digits, int grid) {
    ExactBins bins;
    const int exponent = static_cast<int>(largest >> 23);
    if (exponent == 255) {  // NaN or Inf
      bins.kind = Kind::kSingle;
      return bins;
    }
    const int top = exponent - 126;
    const int least = least_less_1 == ~uint32_t{0} ? top : static_cast<int>((least_less_1 + 1) >> 23) - 127;
    const int unit = std::max(least - (digits - 1), grid);  // every x is a multiple of 2^unit
    // Near. x: sums under 2^(top + log_terms) are exact if that is at most 2^(unit + 53). x^2: the grid of the first
    // bin is as fine as its sums allow; the rests, at most half of the grid, are multiples of 2^(2 unit).
    const int squares = 2 * top + log_terms - 53;
    bins.of_squares = Anchor(squares);
    if (unit >= top + log_terms - 53) return bins;
    // Spread. The same once more for the rests.
    const int rest = squares - 1 + log_terms - 53;
    bins.of_sum = Anchor(top + log_terms - 53);
    bins.of_rest = Anchor(rest);
    const bool fits = unit >= top + 2 * log_terms - 107 && 2 * unit >= rest - 1 + log_terms - 53;
    bins.kind = fits ? Kind::kSpread : Kind::kSingle;
    return bins;
  }
  static double Anchor(int grid) { return 1.5 * std::bit_cast<double>(static_cast<uint64_t>(grid + 52 + 1023) << 52); }
};

}  // namespace normd
#endif  // NORMD_KERNELS_CPU_EXACT_SUMS_CC_

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
using cpu::ExactColumns;
using cpu::ExactRow;
using Kind = ExactBins::Kind;

// Bits of significand, and the exponent of the least element.
HWY_INLINE constexpr int DigitsOf(F32 /*tag*/) { return 24; }
HWY_INLINE constexpr int DigitsOf(F16 /*tag*/) { return 11; }
HWY_INLINE constexpr int DigitsOf(BF16 /*tag*/) { return 8; }
HWY_INLINE constexpr int GridOf(F32 /*tag*/) { return -149; }
HWY_INLINE constexpr int GridOf(F16 /*tag*/) { return -24; }
HWY_INLINE constexpr int GridOf(BF16 /*tag*/) { return -133; }

// The largest |x| and the least that is not 0, less 1, lane by lane, as bits of f32.
struct BitRange {
  using Words = hn::RebindToUnsigned<Tag<float>>;
  static constexpr int64_t kWidth = kLanesOf<float>;

  hn::Vec<Words> largest, least;

  HWY_INLINE void Clear() {
    largest = hn::Zero(Words());
    least = hn::Set(Words(), ~uint32_t{0});
  }
  HWY_INLINE void Take(Vector<float> x) {
    const auto bits = hn::And(hn::BitCast(Words(), x), hn::Set(Words(), 0x7FFFFFFFu));
    largest = hn::Max(largest, bits);
    least = hn::Min(least, hn::Sub(bits, hn::Set(Words(), 1u)));
  }
};

// The bins of kLanes columns, or of a row.
template <Kind kKind>
struct Bins {
  V sum, low_sum, squares, middle, low;

  HWY_INLINE void Clear() { sum = low_sum = squares = middle = low = Zero(); }
  HWY_INLINE void Take(V x, V of_sum, V of_squares, V of_rest) {
    if constexpr (kKind == Kind::kNear) {
      sum = hn::Add(sum, x);
    } else {
      const V upper = hn::Sub(hn::Add(x, of_sum), of_sum);
      sum = hn::Add(sum, upper);
      low_sum = hn::Add(low_sum, hn::Sub(x, upper));
    }
    const V upper = hn::Sub(Fma(x, x, of_squares), of_squares);
    squares = hn::Add(squares, upper);
    const V rest = FmaMinus(x, upper);
    if constexpr (kKind == Kind::kNear) {
      low = hn::Add(low, rest);
    } else {
      const V between = hn::Sub(hn::Add(rest, of_rest), of_rest);
      middle = hn::Add(middle, between);
      low = hn::Add(low, hn::Sub(rest, between));
    }
  }
  HWY_INLINE void Add(const Bins& other) {
    sum = hn::Add(sum, other.sum);
    low_sum = hn::Add(low_sum, other.low_sum);
    squares = hn::Add(squares, other.squares);
    middle = hn::Add(middle, other.middle);
    low = hn::Add(low, other.low);
  }

 private:
  // x^2 - y.
  static HWY_INLINE V FmaMinus(V x, V y) {
#if HWY_NATIVE_FMA
    return hn::MulSub(x, x, y);
#else
    return hn::Sub(hn::Mul(x, x), y);  // x^2 has 48 bits, and the difference is exact
#endif
  }
};

// ---- Rows ----

// Adds the kRowBlock elements at x.
template <Kind kKind>
void SumRowBlock(const float* HWY_RESTRICT x, const ExactBins& anchors, uint64_t count, NarrowExactSums* sums) {
  const V of_sum = Set(anchors.of_sum), of_squares = Set(anchors.of_squares), of_rest = Set(anchors.of_rest);
  constexpr int64_t kWays = 4;  // an addition takes four cycles
  static_assert(kRowBlock % (kWays * kLanes) == 0);
  Bins<kKind> bins[kWays];
  for (auto& way : bins) way.Clear();
  for (int64_t i = 0; i < kRowBlock; i += kWays * kLanes) {
    for (int64_t way = 0; way < kWays; ++way) {
      bins[way].Take(LoadAs<double>(F32(), x + i + way * kLanes), of_sum, of_squares, of_rest);
    }
  }
  for (int64_t way = 1; way < kWays; ++way) bins[0].Add(bins[way]);
  const auto total = [](V v) HWY_ATTR { return hn::GetLane(hn::SumOfLanes(d, v)); };
  sums->AddParts(count, {total(bins[0].sum), total(bins[0].low_sum)},
                 {total(bins[0].squares), total(bins[0].middle), total(bins[0].low)});
}

// Adds the kRowBlock elements at x, of which the first `count` exist and the others are 0.
void AddRowBlock(const float* HWY_RESTRICT x, int64_t count, int digits, int grid, NarrowExactSums* sums) {
  BitRange range;
  range.Clear();
  for (int64_t i = 0; i < kRowBlock; i += BitRange::kWidth) range.Take(hn::LoadU(Tag<float>(), x + i));
  const uint32_t largest = hn::GetLane(hn::MaxOfLanes(BitRange::Words(), range.largest));
  const uint32_t least = hn::GetLane(hn::MinOfLanes(BitRange::Words(), range.least));
  const ExactBins bins = ExactBins::Of(largest, least, kLogRowBlock, digits, grid);
  switch (bins.kind) {
    case Kind::kNear:
      return SumRowBlock<Kind::kNear>(x, bins, static_cast<uint64_t>(count), sums);
    case Kind::kSpread:
      return SumRowBlock<Kind::kSpread>(x, bins, static_cast<uint64_t>(count), sums);
    case Kind::kSingle:
      for (int64_t i = 0; i < count; ++i) sums->Add(ElementAt(F32(), x + i));
  }
}

// Collects elements of short segments, of masked ones and of other types in a block of f32.
class RowBuffer {
 public:
  RowBuffer(int digits, int grid, NarrowExactSums* sums) : digits_(digits), grid_(grid), sums_(sums) {}

  // Takes up to n elements and returns how many. A mask may be null.
  template <typename T>
  HWY_INLINE int64_t Take(T tag, const typename T::Storage* x, const uint8_t* mask, int64_t n) {
    const int64_t count = HWY_MIN(n, kRowBlock - size_);
    if (mask != nullptr) {
      for (int64_t i = 0; i < count; ++i) {
        elements_[size_] = static_cast<float>(ElementAt(tag, x + i));
        size_ += mask[i] != 0 ? 1 : 0;
      }
    } else {
      int64_t i = 0;
      for (; i + kWidth <= count; i += kWidth) {
        hn::StoreU(LoadAs<float>(tag, x + i), Tag<float>(), elements_ + size_ + i);
      }
      if (i < count) hn::StoreU(LoadFirstAs<float>(tag, x + i, count - i), Tag<float>(), elements_ + size_ + i);
      size_ += count;
    }
    if (size_ == kRowBlock) Flush();
    return count;
  }
  void Flush() {
    if (size_ == 0) return;
    std::fill(elements_ + size_, elements_ + kRowBlock, 0.0f);
    AddRowBlock(elements_, size_, digits_, grid_, sums_);
    size_ = 0;
  }
  bool empty() const { return size_ == 0; }

 private:
  static constexpr int64_t kWidth = kLanesOf<float>;

  const int digits_, grid_;
  NarrowExactSums* const sums_;
  int64_t size_ = 0;
  HWY_ALIGN float elements_[kRowBlock + kWidth];
};

template <typename T>
void AddRow(T tag, const ExactRow& row, NarrowExactSums* sums) {
  RowBuffer buffer(DigitsOf(tag), GridOf(tag), sums);
  for (int64_t segment = 0; segment < row.segments; ++segment) {
    const auto* x = static_cast<const typename T::Storage*>(row.data) + segment * row.stride;
    const uint8_t* mask = row.mask == nullptr ? nullptr : row.mask + segment * row.mask_stride;
    for (int64_t i = 0; i < row.n;) {
      if constexpr (std::is_same_v<T, F32>) {
        if (mask == nullptr && buffer.empty() && row.n - i >= kRowBlock) {
          AddRowBlock(x + i, kRowBlock, DigitsOf(tag), GridOf(tag), sums);
          i += kRowBlock;
          continue;
        }
      }
      i += buffer.Take(tag, x + i, mask == nullptr ? nullptr : mask + i, row.n - i);
    }
  }
  buffer.Flush();
}

// ---- Columns ----

// The vectors of f64 that a sweep over a block of positions keeps in registers, two of them in a vector of f32.
inline constexpr int64_t kSweepVectors = HWY_TARGET == HWY_AVX3 ? 4 : 2;
inline constexpr int64_t kSweep = kSweepVectors * kLanes;

// A block of positions of at most kSweep columns.
template <typename T>
struct SweepOf {
  const typename T::Storage* const* rows;
  int64_t positions;
  int64_t column, columns;

  // Lanes past the last column are 0.
  template <typename Real>
  HWY_INLINE Vector<Real> Load(int64_t position, int64_t at) const {
    const auto* x = rows[position] + column + at;
    const int64_t left = columns - at;
    if (HWY_LIKELY(left >= kLanesOf<Real>)) return LoadAs<Real>(T(), x);
    return left <= 0 ? hn::Zero(Tag<Real>()) : LoadFirstAs<Real>(T(), x, left);
  }
};

// The range of each column.
struct SweepRange {
  HWY_ALIGN uint32_t largest[kSweep + BitRange::kWidth], least[kSweep + BitRange::kWidth];
};
template <typename T>
HWY_INLINE void Measure(const SweepOf<T>& sweep, SweepRange* range) {
  constexpr int64_t kVectors = HWY_MAX(kSweep / BitRange::kWidth, 1);
  BitRange lanes[kVectors];
  for (auto& v : lanes) v.Clear();
  for (int64_t p = 0; p < sweep.positions; ++p) {
    for (int64_t k = 0; k < kVectors; ++k) lanes[k].Take(sweep.template Load<float>(p, k * BitRange::kWidth));
  }
  for (int64_t k = 0; k < kVectors; ++k) {
    hn::Store(lanes[k].largest, BitRange::Words(), range->largest + k * BitRange::kWidth);
    hn::Store(lanes[k].least, BitRange::Words(), range->least + k * BitRange::kWidth);
  }
}

// The anchors of each column.
struct SweepBins {
  HWY_ALIGN double of_sum[kSweep], of_squares[kSweep], of_rest[kSweep];
  Kind kind[kSweep];
};

// Adds the columns whose bins are of kKind.
template <Kind kKind, typename T>
HWY_INLINE void SumSweep(const SweepOf<T>& sweep, const SweepBins& anchors, NarrowExactSums* sums) {
  constexpr int64_t kVectors = kKind == Kind::kNear ? kSweepVectors : 1;
  for (int64_t at = 0; at < sweep.columns; at += kVectors * kLanes) {
    const Kind* kinds = anchors.kind + at;
    if (std::find(kinds, kinds + kVectors * kLanes, kKind) == kinds + kVectors * kLanes) continue;
    Bins<kKind> bins[kVectors];
    V of_sum[kVectors], of_squares[kVectors], of_rest[kVectors];
    for (int64_t k = 0; k < kVectors; ++k) {
      bins[k].Clear();
      of_sum[k] = hn::Load(d, anchors.of_sum + at + k * kLanes);
      of_squares[k] = hn::Load(d, anchors.of_squares + at + k * kLanes);
      of_rest[k] = hn::Load(d, anchors.of_rest + at + k * kLanes);
    }
    for (int64_t p = 0; p < sweep.positions; ++p) {
      for (int64_t k = 0; k < kVectors; ++k) {
        bins[k].Take(sweep.template Load<double>(p, at + k * kLanes), of_sum[k], of_squares[k], of_rest[k]);
      }
    }
    HWY_ALIGN double lanes[5][kVectors * kLanes];
    for (int64_t k = 0; k < kVectors; ++k) {
      const V parts[5] = {bins[k].sum, bins[k].low_sum, bins[k].squares, bins[k].middle, bins[k].low};
      for (int64_t i = 0; i < 5; ++i) hn::Store(parts[i], d, lanes[i] + k * kLanes);
    }
    for (int64_t c = 0; c < HWY_MIN(kVectors * kLanes, sweep.columns - at); ++c) {
      if (kinds[c] != kKind) continue;
      sums[at + c].AddParts(static_cast<uint64_t>(sweep.positions), {lanes[0][c], lanes[1][c]},
                            {lanes[2][c], lanes[3][c], lanes[4][c]});
    }
  }
}

template <typename T>
void AddSweep(const SweepOf<T>& sweep, NarrowExactSums* sums) {
  SweepRange range;
  Measure(sweep, &range);
  SweepBins bins;
  bool has[3] = {};
  for (int64_t c = 0; c < kSweep; ++c) {
    const ExactBins of = ExactBins::Of(range.largest[c], range.least[c], kLogColumnBlock, DigitsOf(T()), GridOf(T()));
    bins.of_sum[c] = of.of_sum;
    bins.of_squares[c] = of.of_squares;
    bins.of_rest[c] = of.of_rest;
    bins.kind[c] = of.kind;
    has[static_cast<size_t>(of.kind)] |= c < sweep.columns;
  }
  if (has[0]) SumSweep<Kind::kNear>(sweep, bins, sums);
  if (has[1]) SumSweep<Kind::kSpread>(sweep, bins, sums);
  if (!has[2]) return;
  for (int64_t c = 0; c < sweep.columns; ++c) {
    if (bins.kind[c] != Kind::kSingle) continue;
    for (int64_t p = 0; p < sweep.positions; ++p) sums[c].Add(ElementAt(T(), sweep.rows[p] + sweep.column + c));
  }
}

template <typename T>
void AddColumns(T /*tag*/, const ExactColumns& x, NarrowExactSums* sums) {
  const auto* data = static_cast<const typename T::Storage*>(x.data);
  const typename T::Storage* rows[kColumnPositions];
  for (int64_t position = 0; position < x.positions;) {
    int64_t count = 0;
    for (; position < x.positions && count < kColumnPositions; ++position) {
      if (x.mask == nullptr || x.mask[position] != 0) rows[count++] = data + position * x.stride;
    }
    for (int64_t column = 0; count > 0 && column < x.columns; column += kSweep) {
      AddSweep<T>({rows, count, column, HWY_MIN(kSweep, x.columns - column)}, sums + column);
    }
  }
}

void AddNarrowRow(const ExactRow& row, NarrowExactSums* sums) {
  switch (row.dtype) {
    case DType::kF32:
      return AddRow(F32(), row, sums);
    case DType::kF16:
      return AddRow(F16(), row, sums);
    case DType::kBF16:
      return AddRow(BF16(), row, sums);
    case DType::kF64:
      return;  // not a narrow type
  }
}
void AddNarrowColumns(const ExactColumns& x, NarrowExactSums* sums) {
  switch (x.dtype) {
    case DType::kF32:
      return AddColumns(F32(), x, sums);
    case DType::kF16:
      return AddColumns(F16(), x, sums);
    case DType::kBF16:
      return AddColumns(BF16(), x, sums);
    case DType::kF64:
      return;  // not a narrow type
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normd::cpu {
HWY_EXPORT(AddNarrowRow);
HWY_EXPORT(AddNarrowColumns);

namespace {

double ElementOf(const void* data, int64_t index) {  // at any alignment
  double value;
  std::memcpy(&value, static_cast<const char*>(data) + index * SizeOf(DType::kF64), sizeof(value));
  return value;
}

}  // namespace

void AddExactly(const ExactRow& row, NarrowExactSums* sums) { HWY_DYNAMIC_DISPATCH(AddNarrowRow)(row, sums); }
void AddExactly(const ExactColumns& columns, NarrowExactSums* sums) {
  HWY_DYNAMIC_DISPATCH(AddNarrowColumns)(columns, sums);
}
void AddExactly(const ExactRow& row, WideExactSums* sums) {
  for (int64_t segment = 0; segment < row.segments; ++segment) {
    for (int64_t i = 0; i < row.n; ++i) {
      if (row.mask != nullptr && row.mask[segment * row.mask_stride + i] == 0) continue;
      sums->Add(ElementOf(row.data, segment * row.stride + i));
    }
  }
}
void AddExactly(const ExactColumns& columns, WideExactSums* sums) {
  for (int64_t position = 0; position < columns.positions; ++position) {
    if (columns.mask != nullptr && columns.mask[position] == 0) continue;
    for (int64_t c = 0; c < columns.columns; ++c) sums[c].Add(ElementOf(columns.data, position * columns.stride + c));
  }
}

}  // namespace normd::cpu
#endif  // HWY_ONCE
