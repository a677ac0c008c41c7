// The reduce pass of Pattern::kColumns (the innermost extent is kept): the sums of one block of positions, a vector of
// adjacent columns at a time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/columns.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
#include <algorithm>
#include <limits>
#include <utility>

#include "hwy/highway.h"
#include "kernels/cpu/finish-inl.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/shallow-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
using cpu::ColumnBlock;
using cpu::GivenNumbers;
using cpu::PositionScale;

// The number of vectors of columns that one sweep over the positions keeps in registers.
inline constexpr int64_t kTileVectors = 4;

// Writes the sums of columns [column, column + kVectors * kLanes), of which `count` exist.
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

template <Statistic kStatistic, bool kPre, typename T, typename Sums>
void SumColumns(T tag, TypeTag<Sums> type, const ColumnBlock& block, PairSums* out) {
  constexpr int64_t kTile = kTileVectors * kLanes;
  int64_t column = 0;
  for (; column + kTile <= block.columns; column += kTile) {
    SumTile<kStatistic, kPre, kTileVectors>(tag, type, block, column, kTile, out);
  }
  for (; column < block.columns; column += kLanes) {
    SumTile<kStatistic, kPre, 1>(tag, type, block, column, HWY_MIN(kLanes, block.columns - column), out);
  }
}

void ReduceColumnBlock(Statistic statistic, const ColumnBlock& block, PairSums* sums) {
  if (block.pre != nullptr) {
    WithElementType(block.x.dtype, [&](auto tag, auto type)
                                       HWY_ATTR { SumColumns<Statistic::kMeanSquare, true>(tag, type, block, sums); });
    return;
  }
  constexpr TypeTag<WideSums> kWide;
  switch (statistic) {
    case Statistic::kMeanVariance:
      return SumColumns<Statistic::kMeanVariance, false>(F64(), kWide, block, sums);
    case Statistic::kAbsSum:
      return SumColumns<Statistic::kAbsSum, false>(F64(), kWide, block, sums);
    case Statistic::kMeanSquare:
    case Statistic::kSumSquares:
    case Statistic::kPowerSum:  // its terms are summed as kAbsSum
    case Statistic::kMaxAbs:    // has no sums
      return SumColumns<Statistic::kMeanSquare, false>(F64(), kWide, block, sums);
  }
}

void ReduceColumnsInPairs(const ColumnBlock& block, PairSums* sums) {
  WithNarrowType(block.x.dtype, [&](auto tag) HWY_ATTR {
    SumColumns<Statistic::kMeanVariance, false>(tag, TypeTag<WideSums>(), block, sums);
  });
}

// The number of columns whose sums fit in L1 beside the elements that stream by.
inline constexpr int64_t kSumColumns = 1024;

// Adds lanes of sums to f64 sums, or, if kFresh, writes them there.
template <bool kFresh>
HWY_INLINE void AddTo(V sums, double* HWY_RESTRICT totals) {
  hn::StoreU(kFresh ? sums : hn::Add(hn::LoadU(d, totals), sums), d, totals);
}
template <bool kFresh>
HWY_INLINE void AddTo(Vector<float> sums, double* HWY_RESTRICT totals) {
#if HWY_NATIVE_FMA
  AddTo<kFresh>(hn::PromoteTo(d, hn::LowerHalf(df, sums)), totals);
  AddTo<kFresh>(hn::PromoteTo(d, hn::UpperHalf(df, sums)), totals + kLanes);
#else
  HWY_ALIGN float lanes[kLanesOf<float>];
  hn::Store(sums, Tag<float>(), lanes);
  for (int64_t i = 0; i < kLanesOf<float>; ++i) totals[i] = (kFresh ? 0 : totals[i]) + lanes[i];
#endif
}

// Adds the sums of `count` rows to `first` and `second`, or, if kFresh, writes them there. Sums in f64 are continued
// row by row, or, if kShallow, by four rows; sums in f32 are made of these rows alone and then added. A null `shift` is
// 0.
template <bool kFresh, bool kShallow, typename Real, Statistic kStatistic, typename T>
HWY_INLINE void SweepRows(T tag, const typename T::Storage* const* rows, int64_t count, int64_t columns,
                          const Real* HWY_RESTRICT shift, double* HWY_RESTRICT first, double* HWY_RESTRICT second) {
  const Tag<Real> real;
  constexpr bool kInF64 = std::is_same_v<Real, double>;
  constexpr bool kCentred = kStatistic == Statistic::kMeanVariance;
  // The values in lanes past the last column are never used: see RoomOf.
  for (int64_t c = 0; c < columns; c += kLanesOf<Real>) {
    NarrowSums<Real> sums;
    NarrowSums<Real> odd;  // f32 only: two partial sums halve the error
    sums.Clear();
    odd.Clear();
    const int64_t left = columns - c;
    const bool whole = left >= kLanesOf<Real>;
    if constexpr (kInF64 && !kFresh) {
      if (kCentred) sums.first = hn::LoadU(real, first + c);
      sums.second = hn::LoadU(real, second + c);
    }
    auto about = hn::Zero(real);
    if (kCentred && shift != nullptr) about = whole ? hn::LoadU(real, shift + c) : LoadFirst(real, shift + c, left);
    const auto read = [&](int64_t r) HWY_ATTR {
      const auto value = whole ? LoadAs<Real>(tag, rows[r] + c) : LoadFirstAs<Real>(tag, rows[r] + c, left);
      return kCentred ? hn::Sub(value, about) : value;
    };
    const auto take = [&](int64_t r, NarrowSums<Real>& into) HWY_ATTR { into.template Take<kStatistic>(read(r)); };
    int64_t r = 0;
    for (; kShallow && r + 4 <= count; r += 4) {
      const typename NarrowSums<Real>::Value four[4] = {read(r), read(r + 1), read(r + 2), read(r + 3)};
      TakeFour<kStatistic>(four, &sums);
    }
    for (; r + 2 <= count; r += 2) {
      take(r, sums);
      take(r + 1, kInF64 ? sums : odd);
    }
    if (r < count) take(r, sums);
    if constexpr (kInF64) {
      if (kCentred) hn::StoreU(sums.first, real, first + c);
      hn::StoreU(sums.second, real, second + c);
    } else {
      if (kCentred) AddTo<kFresh>(hn::Add(sums.first, odd.first), first + c);
      AddTo<kFresh>(hn::Add(sums.second, odd.second), second + c);
    }
  }
}

HWY_INLINE const double* ShiftsOf(const ColumnBlock& block, double /*type*/) { return block.shift; }
HWY_INLINE const float* ShiftsOf(const ColumnBlock& block, float /*type*/) { return block.shift32; }

template <bool kShallow, typename Real, Statistic kStatistic, typename T>
void SumRows(T tag, const ColumnBlock& block, double* first, double* second) {
  const typename T::Storage* rows[order::kColumnBlock];
  int64_t count = 0;
  for (int64_t p = 0; p < block.positions; ++p) {
    if (block.mask != nullptr && block.mask[p] == 0) continue;  // adding 0 would change nothing
    rows[count++] = static_cast<const typename T::Storage*>(block.x.data) + p * block.stride;
  }
  if (count == 0) {
    if (kStatistic == Statistic::kMeanVariance) std::fill_n(first, block.columns, 0.0);
    std::fill_n(second, block.columns, 0.0);
  }
  const Real* const shifts = ShiftsOf(block, Real());
  for (int64_t column = 0; column < block.columns; column += kSumColumns) {
    const int64_t columns = HWY_MIN(kSumColumns, block.columns - column);
    const Real* const shift = shifts == nullptr ? nullptr : shifts + column;
    double* const first_here = first == nullptr ? nullptr : first + column;
    for (int64_t row = 0; row < count; row += order::kFastColumnRun) {
      const int64_t run = HWY_MIN(order::kFastColumnRun, count - row);
      if (row == 0) {
        SweepRows<true, kShallow, Real, kStatistic>(tag, rows, run, columns, shift, first_here, second + column);
      } else {
        SweepRows<false, kShallow, Real, kStatistic>(tag, rows + row, run, columns, shift, first_here, second + column);
      }
    }
    for (int64_t row = 0; row < count; ++row) rows[row] += columns;
  }
}

template <bool kShallow, typename Real>
void SumRowsOf(Statistic statistic, const ColumnBlock& block, double* first, double* second) {
  WithNarrowType(block.x.dtype, [&](auto tag) HWY_ATTR {
    switch (statistic) {
      case Statistic::kMeanVariance:
        return SumRows<kShallow, Real, Statistic::kMeanVariance>(tag, block, first, second);
      case Statistic::kAbsSum:
        return SumRows<kShallow, Real, Statistic::kAbsSum>(tag, block, first, second);
      case Statistic::kMeanSquare:
      case Statistic::kSumSquares:
      case Statistic::kPowerSum:  // never narrow
      case Statistic::kMaxAbs:
        return SumRows<kShallow, Real, Statistic::kMeanSquare>(tag, block, first, second);
    }
  });
}

void ReduceNarrowColumnBlock(Statistic statistic, Precision precision, const ColumnBlock& block, double* first,
                             double* second) {
  if (precision == Precision::kFast) {
    SumRowsOf<false, float>(statistic, block, first, second);
  } else if (block.shallow) {
    SumRowsOf<true, double>(statistic, block, first, second);
  } else {
    SumRowsOf<false, double>(statistic, block, first, second);
  }
}

void AddSums(const double* from, int64_t n, double* to) {
  static_assert(cpu::RoomOf(1) % kLanes == 0);
  for (int64_t i = 0; i < n; i += kLanes) AddTo<false>(hn::LoadU(d, from + i), to + i);
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

// GivenStatistics() of the vector of groups from group `i` on, where elements are calculated in f64.
HWY_INLINE StatisticsLanes GivenLanes(const DivisorRule& rule, const GivenNumbers& numbers, int64_t i) {
  const V infinity = Set(std::numeric_limits<double>::infinity());
  V inverse = InverseDivisors<false>(rule, hn::LoadU(d, numbers.variance + i));
  const V for_infinity = Set(Factor(rule, std::numeric_limits<double>::infinity()));
  inverse = hn::IfThenElse(hn::Eq(inverse, infinity), for_infinity, inverse);
  const bool centred = numbers.mean != nullptr;
  const V shift = centred ? CentringShifts(hn::LoadU(d, numbers.mean + i)) : Set(GroupStatistics().shift);
  return {shift, Zero(), inverse};
}

// The same where elements are calculated in f32, for the lanes that `fit`: the second part of a mean that is near to 0
// is left out, as CentreNarrow() does.
HWY_INLINE void SplitGiven(M fit, V variance, StatisticsLanes* lanes) {
  StatisticsLanes split = *lanes;
  split.Split();
  const M near = hn::Le(hn::Mul(lanes->shift, lanes->shift), hn::Mul(Set(kFastGuard), variance));
  split.delta = hn::IfThenZeroElse(near, split.delta);
  lanes->delta = hn::IfThenElseZero(fit, split.delta);
  lanes->shift = hn::IfThenElse(fit, split.shift, lanes->shift);
}

// Fills `groups`. Returns whether all of them are calculated in the same type.
bool FillGiven(const DivisorRule& rule, const GivenNumbers& numbers, Precision precision, cpu::GivenGroups* groups) {
  const bool in_fast = precision == Precision::kFast && numbers.mean != nullptr;
  bool all_fit = true, any_fits = false;
  for (int64_t at = 0; at < numbers.n; at += kLanes) {
    const int64_t i = HWY_MIN(at, numbers.n - kLanes);  // the last vector repeats groups of the one before it
    StatisticsLanes lanes = GivenLanes(rule, numbers, i);
    const M fit = lanes.FitF32();
    all_fit = all_fit && hn::AllTrue(d, fit);
    any_fits = any_fits || !hn::AllFalse(d, fit);
    if (in_fast) SplitGiven(fit, hn::LoadU(d, numbers.variance + i), &lanes);
    groups->has_delta = groups->has_delta || !hn::AllTrue(d, hn::Eq(lanes.delta, Zero()));
    hn::StoreU(lanes.shift, d, groups->shift.data() + i);
    hn::StoreU(lanes.delta, d, groups->delta.data() + i);
    hn::StoreU(lanes.inverse, d, groups->inverse.data() + i);
  }
  groups->in_f32 = in_fast && any_fits;
  return all_fit == any_fits || !in_fast;
}

int64_t LanesOfGiven() { return kLanes; }

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normd::cpu {
HWY_EXPORT(ReduceColumnBlock);
HWY_EXPORT(ReduceColumnsInPairs);
HWY_EXPORT(ReduceNarrowColumnBlock);
HWY_EXPORT(AddSums);
HWY_EXPORT(MeasureColumns);
HWY_EXPORT(FillGiven);
HWY_EXPORT(LanesOfGiven);

void ReduceColumnBlock(Statistic statistic, const ColumnBlock& block, PairSums* sums) {
  HWY_DYNAMIC_DISPATCH(ReduceColumnBlock)(statistic, block, sums);
}
void ReduceColumnsInPairs(const ColumnBlock& block, PairSums* sums) {
  HWY_DYNAMIC_DISPATCH(ReduceColumnsInPairs)(block, sums);
}
void ReduceNarrowColumnBlock(Statistic statistic, Precision precision, const ColumnBlock& block, double* first,
                             double* second) {
  HWY_DYNAMIC_DISPATCH(ReduceNarrowColumnBlock)(statistic, precision, block, first, second);
}
void AddSums(const double* from, int64_t n, double* to) { HWY_DYNAMIC_DISPATCH(AddSums)(from, n, to); }
void MeasureColumns(const ColumnBlock& block, Magnitude* magnitudes) {
  HWY_DYNAMIC_DISPATCH(MeasureColumns)(block, magnitudes);
}

FinishedStatistics GivenGroups::At(int64_t group) const {
  const auto i = static_cast<size_t>(group);
  FinishedStatistics finished;
  finished.statistics.shift = shift[i];
  finished.statistics.delta = {delta[i], 0};
  finished.statistics.inverse = {inverse[i], 0};
  finished.elements_in_f32 = in_f32;
  return finished;
}

std::optional<GivenGroups> PrepareGiven(const DivisorRule& rule, const GivenNumbers& numbers, Precision precision) {
  if (numbers.n < HWY_DYNAMIC_DISPATCH(LanesOfGiven)()) return std::nullopt;
  const auto size = static_cast<size_t>(numbers.n);
  GivenGroups groups = {
      .shift = std::vector<double>(size), .delta = std::vector<double>(size), .inverse = std::vector<double>(size)};
  const bool alike = HWY_DYNAMIC_DISPATCH(FillGiven)(rule, numbers, precision, &groups);
  return alike ? std::optional(std::move(groups)) : std::nullopt;
}
}  // namespace normd::cpu
#endif  // HWY_ONCE
