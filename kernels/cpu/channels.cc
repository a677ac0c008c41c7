// The reduce pass over adjacent channels (BatchNorm and InstanceNorm of small images): their sums, and their statistics
// as many at once as a vector has lanes; the latter for columns, too.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/channels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
#include <algorithm>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/certificate.h"
#include "kernels/cpu/finish-inl.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/row_sums-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
using cpu::ChannelBlock;
using cpu::ChannelStatistics;
using cpu::RowChunks;
using cpu::SummedChannels;

// The segments of a chunk that has several short ones. `step` segments are added up before their sum is added to the
// sum of the earlier steps: all of them, or under FAST as many as summation_order.h says.
struct ChunkSegments {
  int64_t n = 0, stride = 0, count = 1, step = 1;
};

// Writes the partial sums of one turn. `x` is the first element of the first segment that belongs to them. A segment
// consists of whole rounds of all partial sums, and a remainder. kFull whole vectors of the remainder belong to this
// turn, and, if kPart, the first n % lanes elements of one more vector. Without kSubtract the shift is 0.
template <int64_t kFull, bool kPart, bool kSubtract, typename Real, typename T>
HWY_INLINE void SumTurn(T tag, const typename T::Storage* x, const ChunkSegments& segments, Vector<Real> shift,
                        Vector<Real>* first, Vector<Real>* second) {
  constexpr int64_t kStep = kLanesOf<Real>;
  using Sums = NarrowSums<Real>;
  const int64_t rounds = segments.n / kPartials<Real>;
  const int64_t part = segments.n % kStep;
  const auto in_part = hn::FirstN(Tag<Real>(), static_cast<size_t>(part));
  for (int64_t segment = 0; segment < segments.count;) {
    const bool begins = segment == 0;
    const int64_t stop = HWY_MIN(segments.count, segment + segments.step);
    Sums sums[kTogether<Real>];
    for (Sums& sum : sums) sum.Clear();
    for (; segment < stop; ++segment) {
      const auto* at = x + segment * segments.stride;
      const auto take = [&](int64_t k) HWY_ATTR {
        const auto value = LoadAs<Real>(tag, at + k * kStep);
        sums[k].template Take<Statistic::kMeanVariance>(kSubtract ? Sums::Subtract(value, shift) : value);
      };
      for (int64_t round = 0; round < rounds; ++round, at += kPartials<Real>) {
        for (int64_t k = 0; k < kTogether<Real>; ++k) take(k);
      }
      for (int64_t k = 0; k < kFull; ++k) take(k);
      if constexpr (kPart) {  // lanes past the end add exactly 0
        auto value = LoadFirstAs<Real>(tag, at + kFull * kStep, part);
        if constexpr (kSubtract) value = Sums::Only(in_part, Sums::Subtract(value, shift));
        sums[kFull].template Take<Statistic::kMeanVariance>(value);
      }
    }
    for (int64_t k = 0; k < kTogether<Real>; ++k) {
      first[k] = begins ? sums[k].first : hn::Add(first[k], sums[k].first);
      second[k] = begins ? sums[k].second : hn::Add(second[k], sums[k].second);
    }
  }
}

// Calls f with `count` as a constant. REQUIRES: 0 <= count <= kMost.
template <int64_t kMost, typename F>
HWY_INLINE void WithConstant(int64_t count, F f) {
  if constexpr (kMost > 0) {
    if (count < kMost) return WithConstant<kMost - 1>(count, f);
  }
  f(std::integral_constant<int64_t, kMost>());
}

// The sums of such a chunk, about a shift if kSubtract; SumChunk returns the same. The vectors of partial sums take
// turns, see kTogether.
template <bool kSubtract, typename Real, typename T>
HWY_INLINE PairSums SumSegments(T tag, TypeTag<Real> type, const typename T::Storage* x, const ChunkSegments& segments,
                                double shift_value) {
  constexpr int64_t kTurn = kTogether<Real> * kLanesOf<Real>;
  const auto shift = hn::Set(Tag<Real>(), static_cast<Real>(shift_value));
  const int64_t rest = segments.n % kPartials<Real>;
  Vector<Real> first[kVectors<Real>];
  Vector<Real> second[kVectors<Real>];
  for (int64_t from = 0; from < kVectors<Real>; from += kTogether<Real>) {
    const int64_t at = from * kLanesOf<Real>;
    const int64_t of_turn = HWY_MAX(0, HWY_MIN(rest - at, kTurn));
    WithConstant<kTogether<Real>>(of_turn / kLanesOf<Real>, [&](auto full) HWY_ATTR {
      constexpr int64_t kFull = decltype(full)::value;
      if constexpr (kFull < kTogether<Real>) {
        if (of_turn % kLanesOf<Real> != 0) {
          return SumTurn<kFull, true, kSubtract, Real>(tag, x + at, segments, shift, first + from, second + from);
        }
      }
      SumTurn<kFull, false, kSubtract, Real>(tag, x + at, segments, shift, first + from, second + from);
    });
  }
  const DoublePair sum = Fold(type, first);
  return {sum, Fold(type, second)};
}

// The sums of a chunk that is a part of one long segment, by the faster of two functions: EXACT sums of 16-bit elements
// spend most of their time on loads, and gain nothing from turns.
template <typename Real, typename T>
HWY_INLINE PairSums SumLong(T tag, TypeTag<Real> type, const typename T::Storage* x, int64_t n, double shift) {
  if constexpr (std::is_same_v<Real, float>) {
    return SumInTurns(tag, type, x, n, shift);
  } else {
    constexpr TypeTag<NarrowSums<Real>> kSums;
    const RowChunks chunk = {.x = {DType::kF32, x}, .n = n};  // whatever T is: SumChunk reads no dtype
    if (shift != 0) return SumChunk<Statistic::kMeanVariance, true>(tag, kSums, chunk, shift, 1);
    if constexpr (std::is_same_v<T, F32>) return SumInTurns(tag, type, x, n, 0);
    return SumChunk<Statistic::kMeanVariance, false>(tag, kSums, chunk, 0, 1);
  }
}

// The sums of the channels of a block, and the shifts that they are about. Not initialised.
struct ChannelSums {
  HWY_ALIGN double shift[ChannelBlock::kMaxChannels], first[ChannelBlock::kMaxChannels],
      second[ChannelBlock::kMaxChannels];
};

template <typename Real, typename T>
HWY_INLINE void SumChannels(T tag, TypeTag<Real> type, const ChannelBlock& block, ChannelSums* sums) {
  constexpr bool kIsFast = std::is_same_v<Real, float>;
  const auto* const data = static_cast<const typename T::Storage*>(block.x.data);
  const int64_t chunks = order::GroupChunks(block.segments, block.n);
  for (int64_t c = 0; c < block.channels; ++c) {
    sums->shift[c] = ShiftOf(tag, block.precision, data + c * block.n, block.n, false);
  }
  for (int64_t c = 0; c < block.channels; ++c) {
    const PairSums sum = FoldChunks<ChannelBlock::kMaxChunks>(chunks, [&](int64_t index) HWY_ATTR {
      const order::Chunk chunk = order::ChunkAt(block.segments, block.n, index);
      const auto* const x = data + c * block.n + chunk.segment * block.stride + chunk.at;
      if (block.n > ChannelBlock::kMaxShort) return SumLong(tag, type, x, chunk.length, sums->shift[c]);
      const int64_t step = kIsFast ? order::StepSegments(block.n) : chunk.segments;
      const ChunkSegments segments = {block.n, block.stride, chunk.segments, step};
      return kIsFast || sums->shift[c] != 0 ? SumSegments<true>(tag, type, x, segments, sums->shift[c])
                                            : SumSegments<false>(tag, type, x, segments, 0);
    });
    sums->first[c] = sum.first.hi;
    sums->second[c] = sum.second.hi;
  }
}

// Sets the bounds of the channels, of which `statistics` has the rest; `sums` are those before the statistics.
HWY_INLINE void BoundChannels(double n, double additions, int64_t channels, const ChannelSums& sums,
                              ChannelStatistics* statistics) {
  for (int64_t c = 0; c < channels; ++c) {
    FinishedStatistics finished;
    finished.mean = statistics->mean[c];
    finished.m2 = statistics->m2[c];
    finished.statistics.delta.hi = statistics->delta[c];
    finished.statistics.inverse.hi = statistics->inverse[c];
    const NormalisedBound bound = BoundAboutShift(n, {additions, sums.shift[c], sums.second[c] == 0}, finished);
    statistics->beta[c] = bound.beta;
    statistics->kappa[c] = bound.kappa;
  }
}

// Finishes channels with `count` elements each, as ReduceChannels says.
template <typename Real>
HWY_INLINE void FinishSums(const DivisorRule& rule, int64_t channels, int64_t count, ChannelSums* sums,
                           ChannelStatistics* statistics) {
  // The lanes after the last channel repeat it.
  for (int64_t c = channels; c % kLanes != 0; ++c) {
    sums->shift[c] = sums->shift[c - 1];
    sums->first[c] = sums->first[c - 1];
    sums->second[c] = sums->second[c - 1];
  }
  const V n = Set(static_cast<double>(count));
  constexpr Statistic kStatistic = Statistic::kMeanVariance;
  for (int64_t c = 0; c < channels; c += kLanes) {
    const SumLanes of = {hn::Load(d, sums->shift + c), hn::Load(d, sums->first + c), hn::Load(d, sums->second + c)};
    const FinishedLanes finished = FinishLanes<kStatistic, Real>(kStatistic, rule, n, of);
    hn::StoreU(finished.statistics.shift, d, statistics->shift + c);
    hn::StoreU(finished.statistics.delta, d, statistics->delta + c);
    hn::StoreU(finished.statistics.inverse, d, statistics->inverse + c);
    hn::StoreU(finished.mean, d, statistics->mean + c);
    hn::StoreU(finished.m2, d, statistics->m2 + c);
    HWY_ALIGN double settled[kLanes];
    hn::Store(hn::IfThenElseZero(finished.settled, Set(1)), d, settled);
    for (int64_t lane = 0; lane < kLanes; ++lane) statistics->settled[c + lane] = settled[lane] != 0;
  }
}

// Finishes channels and, in f64, bounds them.
HWY_INLINE void FinishAndBound(const SummedChannels& of, ChannelSums* sums, ChannelStatistics* statistics) {
  if (of.precision == Precision::kFast) return FinishSums<float>(of.rule, of.channels, of.count, sums, statistics);
  FinishSums<double>(of.rule, of.channels, of.count, sums, statistics);
  BoundChannels(static_cast<double>(of.count), of.additions, of.channels, *sums, statistics);
}

void ReduceChannels(const ChannelBlock& block, ChannelStatistics* statistics) {
  static_assert(ChannelBlock::kMaxChannels % kLanes == 0);
  ChannelSums sums;
  WithNarrowType(block.x.dtype, [&](auto tag) HWY_ATTR {
    block.precision == Precision::kFast ? SumChannels(tag, TypeTag<float>(), block, &sums)
                                        : SumChannels(tag, TypeTag<double>(), block, &sums);
  });
  FinishAndBound({.channels = block.channels,
                  .count = block.segments * block.n,
                  .precision = block.precision,
                  .rule = block.rule,
                  .additions = block.additions},
                 &sums, statistics);
}

void FinishChannels(const SummedChannels& channels, ChannelStatistics* statistics) {
  ChannelSums sums;
  std::copy_n(channels.shift, channels.channels, sums.shift);
  std::copy_n(channels.first, channels.channels, sums.first);
  std::copy_n(channels.second, channels.channels, sums.second);
  FinishAndBound(channels, &sums, statistics);
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normd::cpu {
HWY_EXPORT(ReduceChannels);
HWY_EXPORT(FinishChannels);

void ReduceChannels(const ChannelBlock& block, ChannelStatistics* statistics) {
  HWY_DYNAMIC_DISPATCH(ReduceChannels)(block, statistics);
}
void FinishChannels(const SummedChannels& channels, ChannelStatistics* statistics) {
  HWY_DYNAMIC_DISPATCH(FinishChannels)(channels, statistics);
}
}  // namespace normd::cpu
#endif  // HWY_ONCE
