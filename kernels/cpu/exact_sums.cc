// Exact sums of x and x^2. A block of a channel is summed in a few f64 bins: the first takes of each x^2 what is a
// multiple of a grid, so coarse that the sum of a block has no rounding, and the next one takes the exact rest. The
// grids follow from the largest |x| of the block, and its least |x| tells whether the last rest fits, too. The bins are
// then added to integers.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/exact_sums.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
#include <algorithm>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/exact_sums.h"
#include "kernels/cpu/exact_sums_bins.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
using cpu::ColumnsToSum;
using cpu::RowToSum;
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

  // `of_squares` is in the bin of squares until End.
  HWY_INLINE void Begin(V of_squares) {
    sum = low_sum = middle = low = Zero();
    squares = kKind == Kind::kPlain ? Zero() : of_squares;
  }
  HWY_INLINE void End(V of_squares) {
    if constexpr (kKind != Kind::kPlain) squares = hn::Sub(squares, of_squares);
  }
  HWY_INLINE void Take(V x, V of_sum, V of_rest) {
    if constexpr (kKind != Kind::kSpread) {
      sum = AddBesideConversions(x, sum);
    } else {
      const V upper = hn::Sub(hn::Add(x, of_sum), of_sum);
      sum = hn::Add(sum, upper);
      low_sum = hn::Add(low_sum, hn::Sub(x, upper));
    }
    const V next = SquarePlus(x, squares);
    const V upper = hn::Sub(next, squares);
    squares = next;
    if constexpr (kKind == Kind::kPlain) return;
    const V rest = SquareMinus(x, upper);
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
  // x^2 + y and x^2 - y. x^2 has 48 bits: it is exact.
  static HWY_INLINE V SquarePlus(V x, V y) {
#if HWY_NATIVE_FMA
    return hn::MulAdd(x, x, y);
#else
    return hn::Add(hn::Mul(x, x), y);
#endif
  }
  static HWY_INLINE V SquareMinus(V x, V y) {
#if HWY_NATIVE_FMA
    return hn::MulSub(x, x, y);
#else
    return hn::Sub(hn::Mul(x, x), y);
#endif
  }
};

// ---- Rows ----

inline constexpr int64_t kWays = 4;  // an addition takes four cycles
inline constexpr int64_t kRowStep = kWays * kLanes;
static_assert(kRowBlock % kRowStep == 0 && kRowStep % BitRange::kWidth == 0);

// n elements at x, a multiple of kRowStep that is at most kRowBlock. `count` are counted, and the others are 0 or were
// counted before.
struct RowPart {
  const float* x;
  int64_t n, count;
};

// Adds the elements of a block.
template <Kind kKind>
void SumRowBlock(const RowPart& block, const ExactBins& anchors, NarrowExactSums* sums) {
  const float* HWY_RESTRICT x = block.x;
  const int64_t n = block.n;
  const V of_sum = Set(anchors.of_sum), of_squares = Set(anchors.of_squares), of_rest = Set(anchors.of_rest);
  Bins<kKind> bins[kWays];
  for (auto& way : bins) way.Begin(of_squares);
  for (int64_t i = 0; i < n; i += kRowStep) {
    for (int64_t way = 0; way < kWays; ++way) {
      bins[way].Take(LoadAs<double>(F32(), x + i + way * kLanes), of_sum, of_rest);
    }
  }
  for (auto& way : bins) way.End(of_squares);
  for (int64_t way = 1; way < kWays; ++way) bins[0].Add(bins[way]);
  const auto total = [](V v) HWY_ATTR { return hn::GetLane(hn::SumOfLanes(d, v)); };
  const auto count = static_cast<uint64_t>(block.count);
  if constexpr (kKind == Kind::kPlain) return sums->AddParts(count, {total(bins[0].sum)}, {total(bins[0].squares)});
  if constexpr (kKind == Kind::kNear) {
    return sums->AddParts(count, {total(bins[0].sum)}, {total(bins[0].squares), total(bins[0].low)});
  }
  sums->AddParts(count, {total(bins[0].sum), total(bins[0].low_sum)},
                 {total(bins[0].squares), total(bins[0].middle), total(bins[0].low)});
}

// The type of the elements: its bits of significand, and the exponent of its least element.
struct Precise {
  int digits, grid;
};

void AddRowBlock(const RowPart& block, const Precise& type, NarrowExactSums* sums);

// A block of too many exponents for the bins: those of its largest elements first, then the others by themselves, which
// are counted already. It goes at most seven times deep.
HWY_NOINLINE void AddApart(const RowPart& block, float least, const Precise& type, NarrowExactSums* sums) {
  HWY_ALIGN float parts[2][kRowBlock];
  const Tag<float> floats;
  for (int64_t i = 0; i < block.n; i += BitRange::kWidth) {
    const auto v = hn::LoadU(floats, block.x + i);
    const auto is_large = hn::Ge(hn::Abs(v), hn::Set(floats, least));
    hn::Store(hn::IfThenElseZero(is_large, v), floats, parts[0] + i);
    hn::Store(hn::IfThenZeroElse(is_large, v), floats, parts[1] + i);
  }
  AddRowBlock({parts[0], block.n, block.count}, type, sums);
  AddRowBlock({parts[1], block.n, 0}, type, sums);
}

void AddRowBlock(const RowPart& block, const Precise& type, NarrowExactSums* sums) {
  BitRange range;
  range.Clear();
  for (int64_t i = 0; i < block.n; i += BitRange::kWidth) range.Take(hn::LoadU(Tag<float>(), block.x + i));
  const uint32_t largest = hn::GetLane(hn::MaxOfLanes(BitRange::Words(), range.largest));
  const uint32_t least = hn::GetLane(hn::MinOfLanes(BitRange::Words(), range.least));
  const ExactBins bins = ExactBins::Of(largest, least, kLogRowBlock, type.digits, type.grid);
  switch (bins.kind) {
    case Kind::kPlain:
      return SumRowBlock<Kind::kPlain>(block, bins, sums);
    case Kind::kNear:
      return SumRowBlock<Kind::kNear>(block, bins, sums);
    case Kind::kSpread:
      return SumRowBlock<Kind::kSpread>(block, bins, sums);
    case Kind::kSingle:
      if (!ExactBins::IsFinite(largest)) return sums->AddAll(block.x, block.count);
      AddApart(block, ExactBins::LeastOfSpread(largest, kLogRowBlock), type, sums);
  }
}

// Collects elements of short segments, of masked ones and of other types in a block of f32.
class RowBuffer {
 public:
  RowBuffer(const Precise& type, NarrowExactSums* sums) : type_(type), sums_(sums) {}

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
  HWY_INLINE void Take(float x) {
    elements_[size_++] = x;
    if (size_ == kRowBlock) Flush();
  }
  void Flush() {
    if (size_ == 0) return;
    const int64_t n = hwy::RoundUpTo(static_cast<size_t>(size_), kRowStep);
    std::fill(elements_ + size_, elements_ + n, 0.0f);
    AddRowBlock({elements_, n, size_}, type_, sums_);
    size_ = 0;
  }
  bool empty() const { return size_ == 0; }

 private:
  static constexpr int64_t kWidth = kLanesOf<float>;

  const Precise type_;
  NarrowExactSums* const sums_;
  int64_t size_ = 0;
  HWY_ALIGN float elements_[kRowBlock + kWidth];
};

template <typename T>
void AddRow(T tag, const RowToSum& row, NarrowExactSums* sums) {
  const Precise type = {DigitsOf(tag), GridOf(tag)};
  RowBuffer buffer(type, sums);
  for (int64_t segment = 0; segment < row.segments; ++segment) {
    const auto* x = static_cast<const typename T::Storage*>(row.data) + segment * row.stride;
    const uint8_t* mask = row.mask == nullptr ? nullptr : row.mask + segment * row.mask_stride;
    for (int64_t i = 0; i < row.n;) {
      if constexpr (std::is_same_v<T, F32>) {
        if (mask == nullptr && buffer.empty() && row.n - i >= kRowBlock) {
          AddRowBlock({x + i, kRowBlock, kRowBlock}, type, sums);
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
  int64_t next;  // from an element to the one in its place in the sweep after this one

  // Lanes past the last column are 0.
  template <typename Real>
  HWY_INLINE Vector<Real> Load(int64_t position, int64_t at) const {
    const auto* x = rows[position] + column + at;
    const int64_t left = columns - at;
    if (HWY_LIKELY(left >= kLanesOf<Real>)) return LoadAs<Real>(T(), x);
    return left <= 0 ? hn::Zero(Tag<Real>()) : LoadFirstAs<Real>(T(), x, left);
  }
  // Rows lie too far apart for the processor to foresee which of their elements come next.
  HWY_INLINE void FetchNext(int64_t position) const {
    constexpr int64_t kLine = 64;
    constexpr int64_t kBytes = kSweep * static_cast<int64_t>(sizeof(typename T::Storage));
    const auto* bytes = reinterpret_cast<const char*>(rows[position] + column + next);
    for (int64_t at = 0; at < kBytes; at += kLine) hwy::Prefetch(bytes + at);
  }
};

// The range of each column.
struct SweepRange {
  HWY_ALIGN uint32_t largest[kSweep + BitRange::kWidth], least[kSweep + BitRange::kWidth];
};
HWY_INLINE void Measure(const SweepOf<F32>& sweep, SweepRange* range) {
  constexpr int64_t kVectors = HWY_MAX(kSweep / BitRange::kWidth, 1);
  BitRange lanes[kVectors];
  for (auto& v : lanes) v.Clear();
  for (int64_t p = 0; p < sweep.positions; ++p) {
    for (int64_t k = 0; k < kVectors; ++k) lanes[k].Take(sweep.Load<float>(p, k * BitRange::kWidth));
  }
  for (int64_t k = 0; k < kVectors; ++k) {
    hn::Store(lanes[k].largest, BitRange::Words(), range->largest + k * BitRange::kWidth);
    hn::Store(lanes[k].least, BitRange::Words(), range->least + k * BitRange::kWidth);
  }
}
// The bits of 16-bit elements have the order of their values, too. Only the extremes are converted.
template <typename T>
HWY_INLINE void Measure(const SweepOf<T>& sweep, SweepRange* range) {
  using Halves = hn::CappedTag<uint16_t, kSweep>;
  const Halves halves;
  constexpr auto kWidth = static_cast<int64_t>(hn::MaxLanes(Halves()));
  HWY_ALIGN uint16_t most[kSweep + BitRange::kWidth] = {};
  HWY_ALIGN uint16_t fewest[kSweep + BitRange::kWidth] = {};
  for (int64_t at = 0; at < kSweep; at += kWidth) {
    auto largest = hn::Zero(halves);
    auto least = hn::Set(halves, 0xFFFF);
    const int64_t left = sweep.columns - at;
    for (int64_t p = 0; p < sweep.positions && left > 0; ++p) {
      const uint16_t* x = sweep.rows[p] + sweep.column + at;
      const auto value = HWY_LIKELY(left >= kWidth) ? hn::LoadU(halves, x) : LoadFirst(halves, x, left);
      const auto bits = hn::And(value, hn::Set(halves, 0x7FFF));
      largest = hn::Max(largest, bits);
      least = hn::Min(least, hn::Sub(bits, hn::Set(halves, 1)));
    }
    hn::Store(largest, halves, most + at);
    hn::Store(hn::Add(least, hn::Set(halves, 1)), halves, fewest + at);
  }
  using Words = BitRange::Words;
  for (int64_t at = 0; at < kSweep; at += BitRange::kWidth) {
    const auto bits = [&](const uint16_t* of) HWY_ATTR { return hn::BitCast(Words(), LoadAs<float>(T(), of + at)); };
    hn::Store(bits(most), Words(), range->largest + at);
    hn::Store(hn::Sub(bits(fewest), hn::Set(Words(), 1u)), Words(), range->least + at);
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
  constexpr int64_t kVectors = kKind == Kind::kSpread ? 1 : kSweepVectors;
  for (int64_t at = 0; at < sweep.columns; at += kVectors * kLanes) {
    const Kind* kinds = anchors.kind + at;
    if (std::find(kinds, kinds + kVectors * kLanes, kKind) == kinds + kVectors * kLanes) continue;
    Bins<kKind> bins[kVectors];
    V of_sum[kVectors], of_squares[kVectors], of_rest[kVectors];
    for (int64_t k = 0; k < kVectors; ++k) {
      of_sum[k] = hn::Load(d, anchors.of_sum + at + k * kLanes);
      of_squares[k] = hn::Load(d, anchors.of_squares + at + k * kLanes);
      bins[k].Begin(of_squares[k]);
      of_rest[k] = hn::Load(d, anchors.of_rest + at + k * kLanes);
    }
    for (int64_t p = 0; p < sweep.positions; ++p) {
      if (kKind != Kind::kSpread) sweep.FetchNext(p);
      for (int64_t k = 0; k < kVectors; ++k) {
        bins[k].Take(sweep.template Load<double>(p, at + k * kLanes), of_sum[k], of_rest[k]);
      }
    }
    HWY_ALIGN double lanes[5][kVectors * kLanes];
    for (int64_t k = 0; k < kVectors; ++k) {
      bins[k].End(of_squares[k]);
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
  bool has[4] = {};
  for (int64_t c = 0; c < kSweep; ++c) {
    const ExactBins of = ExactBins::Of(range.largest[c], range.least[c], kLogColumnBlock, DigitsOf(T()), GridOf(T()));
    bins.of_sum[c] = of.of_sum;
    bins.of_squares[c] = of.of_squares;
    bins.of_rest[c] = of.of_rest;
    bins.kind[c] = of.kind;
    has[static_cast<size_t>(of.kind)] |= c < sweep.columns;
  }
  if (has[static_cast<size_t>(Kind::kNear)]) {
    std::replace(bins.kind, bins.kind + kSweep, Kind::kPlain, Kind::kNear);  // rather than read all of them twice
    SumSweep<Kind::kNear>(sweep, bins, sums);
  } else if (has[static_cast<size_t>(Kind::kPlain)]) {
    SumSweep<Kind::kPlain>(sweep, bins, sums);
  }
  if (has[static_cast<size_t>(Kind::kSpread)]) SumSweep<Kind::kSpread>(sweep, bins, sums);
  if (!has[static_cast<size_t>(Kind::kSingle)]) return;
  for (int64_t c = 0; c < sweep.columns; ++c) {
    if (bins.kind[c] != Kind::kSingle) continue;
    RowBuffer buffer({DigitsOf(T()), GridOf(T())}, sums + c);
    for (int64_t p = 0; p < sweep.positions; ++p) {
      buffer.Take(static_cast<float>(ElementAt(T(), sweep.rows[p] + sweep.column + c)));
    }
    buffer.Flush();
  }
}

template <typename T>
void AddColumns(T /*tag*/, const ColumnsToSum& x, NarrowExactSums* sums) {
  const auto* data = static_cast<const typename T::Storage*>(x.data);
  const typename T::Storage* rows[kColumnPositions];
  for (int64_t position = 0; position < x.positions;) {
    int64_t count = 0;
    for (; position < x.positions && count < kColumnPositions; ++position) {
      if (x.mask == nullptr || x.mask[position] != 0) rows[count++] = data + position * x.stride;
    }
    for (int64_t column = 0; count > 0 && column < x.columns; column += kSweep) {
      const bool is_last = column + kSweep >= x.columns;
      const int64_t next = is_last ? kColumnPositions * x.stride - column : kSweep;
      AddSweep<T>({rows, count, column, HWY_MIN(kSweep, x.columns - column), next}, sums + column);
    }
  }
}

void AddNarrowRow(const RowToSum& row, NarrowExactSums* sums) {
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
void AddNarrowColumns(const ColumnsToSum& x, NarrowExactSums* sums) {
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

// ---- f64 ----

// Takes the multiple of a grid off `value`.
HWY_INLINE V TakeMultiple(V* value, V anchor) {
  const V multiple = hn::Sub(hn::Add(*value, anchor), anchor);
  *value = hn::Sub(*value, multiple);
  return multiple;
}

struct WideLanes {
  V sum, low_sum, squares, middle, low, lowest;

  HWY_INLINE void Clear() { sum = low_sum = squares = middle = low = lowest = Zero(); }
  HWY_INLINE void Take(V x, const WideBins& anchors) {
    V hi = hn::Mul(x, x);
    V lo = Fma(x, x, hn::Neg(hi));
    sum = hn::Add(sum, TakeMultiple(&x, Set(anchors.of_sum)));
    low_sum = hn::Add(low_sum, x);
    squares = hn::Add(squares, TakeMultiple(&hi, Set(anchors.of_squares)));
    middle = hn::Add(middle, TakeMultiple(&hi, Set(anchors.of_rest)));
    middle = hn::Add(middle, TakeMultiple(&lo, Set(anchors.of_rest)));
    low = hn::Add(low, TakeMultiple(&hi, Set(anchors.of_second_rest)));
    low = hn::Add(low, TakeMultiple(&lo, Set(anchors.of_second_rest)));
    lowest = hn::Add(lowest, hi);
    lowest = hn::Add(lowest, lo);
  }
};

// Adds the kRowBlock elements at x, of which the first `count` exist and the others are 0.
void AddWideBlock(const double* HWY_RESTRICT x, int64_t count, WideExactSums* sums) {
  auto largest = hn::Zero(du);
  auto least = hn::Set(du, ~uint64_t{0});
  for (int64_t i = 0; i < kRowBlock; i += kLanes) {
    const auto bits = hn::BitCast(du, hn::Abs(hn::LoadU(d, x + i)));
    largest = hn::Max(largest, bits);
    least = hn::Min(least, hn::Sub(bits, hn::Set(du, 1)));
  }
  HWY_ALIGN uint64_t lanes[2][kLanes];
  hn::Store(largest, du, lanes[0]);
  hn::Store(least, du, lanes[1]);
  const uint64_t top = *std::max_element(lanes[0], lanes[0] + kLanes);
  if (top == 0) return sums->AddParts(static_cast<uint64_t>(count), {}, {});
  const WideBins anchors = WideBins::Of(top, *std::min_element(lanes[1], lanes[1] + kLanes));
  if (!anchors.fits) return sums->AddAll(x, count);
  WideLanes even, odd;
  even.Clear();
  odd.Clear();
  for (int64_t i = 0; i < kRowBlock; i += 2 * kLanes) {
    even.Take(hn::LoadU(d, x + i), anchors);
    odd.Take(hn::LoadU(d, x + i + kLanes), anchors);
  }
  const auto total = [](V a, V b) HWY_ATTR { return hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b))); };
  sums->AddParts(static_cast<uint64_t>(count), {total(even.sum, odd.sum), total(even.low_sum, odd.low_sum)},
                 {total(even.squares, odd.squares), total(even.middle, odd.middle), total(even.low, odd.low),
                  total(even.lowest, odd.lowest)});
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normd::cpu {
HWY_EXPORT(AddNarrowRow);
HWY_EXPORT(AddNarrowColumns);
HWY_EXPORT(AddWideBlock);

namespace {

// Collects the f64 elements of a channel.
class WideBuffer {
 public:
  explicit WideBuffer(WideExactSums* sums) : sums_(sums) {}

  void Take(const void* data, int64_t index) { TakeAll(data, index, 1); }
  // Elements that lie side by side.
  void TakeAll(const void* data, int64_t index, int64_t n) {
    const char* bytes = static_cast<const char*>(data) + index * SizeOf(DType::kF64);
    while (n > 0) {
      const int64_t count = std::min(n, kRowBlock - size_);
      std::memcpy(elements_ + size_, bytes, static_cast<size_t>(count) * sizeof(double));
      size_ += count;
      n -= count;
      bytes += count * SizeOf(DType::kF64);
      if (size_ == kRowBlock) Flush();
    }
  }
  void Flush() {
    if (size_ == 0) return;
    std::fill(elements_ + size_, elements_ + kRowBlock, 0.0);
    HWY_DYNAMIC_DISPATCH(AddWideBlock)(elements_, size_, sums_);
    size_ = 0;
  }

 private:
  WideExactSums* const sums_;
  int64_t size_ = 0;
  double elements_[kRowBlock];
};

}  // namespace

void AddExactly(const RowToSum& row, NarrowExactSums* sums) { HWY_DYNAMIC_DISPATCH(AddNarrowRow)(row, sums); }
void AddExactly(const ColumnsToSum& columns, NarrowExactSums* sums) {
  HWY_DYNAMIC_DISPATCH(AddNarrowColumns)(columns, sums);
}
void AddExactly(const RowToSum& row, WideExactSums* sums) {
  WideBuffer buffer(sums);
  for (int64_t segment = 0; segment < row.segments; ++segment) {
    const int64_t at = segment * row.stride;
    if (row.mask == nullptr) {
      buffer.TakeAll(row.data, at, row.n);
      continue;
    }
    const uint8_t* mask = row.mask + segment * row.mask_stride;
    for (int64_t i = 0; i < row.n; ++i) {
      if (mask[i] != 0) buffer.Take(row.data, at + i);
    }
  }
  buffer.Flush();
}
void AddExactly(const ColumnsToSum& x, WideExactSums* sums) {
  for (int64_t begin = 0; begin < x.positions; begin += kRowBlock) {
    const int64_t end = std::min(x.positions, begin + kRowBlock);
    for (int64_t c = 0; c < x.columns; ++c) {
      WideBuffer buffer(sums + c);
      for (int64_t p = begin; p < end; ++p) {
        if (x.mask == nullptr || x.mask[p] != 0) buffer.Take(x.data, p * x.stride + c);
      }
      buffer.Flush();
    }
  }
}

}  // namespace normd::cpu
#endif  // HWY_ONCE
