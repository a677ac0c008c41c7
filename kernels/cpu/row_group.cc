#include "kernels/cpu/row_group.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/nearest_channels.h"
#include "kernels/summation_order.h"

namespace normd::cpu {
namespace {

// Groups of several segments are fetched ahead up to this size: half of L1, which they share with the group at hand.
constexpr int64_t kPrefetchGroupBytes = 16 << 10;

// Large groups of f32 nearly always have undecided elements, and summing them once more would take as long again.
constexpr int64_t kLeastInPairs = int64_t{1} << 16;

}  // namespace

RowGroup::RowGroup(const Run& run, int64_t group)
    : run_(run), plan_(run.plan), group_(group), k0_(group / plan_.keep1), k1_(group % plan_.keep1) {
  if (run.to_nearest) nearest_ = std::make_unique<NearestGroups>(run, k0_, k1_, 1);
}

FinishedStatistics RowGroup::Reduce(bool split) {
  FinishedStatistics result;
  if (plan_.given_statistics) {
    result = run_.Given(k1_);
  } else {
    result = Sum(split);
  }
  run_.StoreGroup(group_, result);
  if (run_.to_nearest && run_.StoresGroups()) {
    nearest_->StoreGroup(k1_, result, GroupBound(run_, SumErrorsOf(), result));
  }
  return result;
}

void RowGroup::Apply(const FinishedStatistics& group, bool split) const {
  if (run_.y == nullptr || plan_.reduce1 == 0) return;
  ApplyPieces(group, split);
  if (!pairs_.has_value()) return;
  const auto again = [&](int64_t /*k1*/, absl::FunctionRef<void(const NearestPlace&)> report) {
    const GroupBound bound(run_, SumErrorsOf(), group);
    ApplyGroupQuickly(run_, group, bound, {k0_, k1_, 0, plan_.reduce0, 0, plan_.reduce1}, report);
  };
  nearest_->DecideAdded(again, false, &*pairs_);
  if (run_.stream) FlushStreams();
}

void RowGroup::ApplyPieces(const FinishedStatistics& group, bool split) const {
  const bool per_channel = plan_.affine_index == AffineIndex::kChannel && !run_.parameters.absent();
  // A segment is cut into pieces that have one channel, or that are small enough to share out.
  const int64_t run = per_channel ? std::min(plan_.channel_run, plan_.reduce1) : plan_.reduce1;
  if (!split) {
    // The general loop of cpu::Apply handles one channel a call.
    const bool all = !run_.wide() && plan_.cast_order == CastOrder::kAffineThenCast;
    const int64_t at_once = all ? plan_.reduce1 : run;
    for (int64_t begin = 0; begin < plan_.reduce1; begin += at_once) {
      ApplyPiece(0, plan_.reduce0, begin, begin + at_once, group);
    }
    return;
  }
  const int64_t piece = std::min(run, run_.grain_elements);
  const int64_t pieces_of_run = order::CeilDiv(run, piece);
  const int64_t pieces = plan_.reduce1 / run * pieces_of_run;
  run_.pool.ParallelFor(plan_.reduce0 * pieces, run_.Grain(piece), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t of_segment = i % pieces;
      const int64_t run_begin = of_segment / pieces_of_run * run;
      const int64_t from = run_begin + of_segment % pieces_of_run * piece;
      ApplyPiece(i / pieces, i / pieces + 1, from, std::min(run_begin + run, from + piece), group);
    }
    if (run_.stream) FlushStreams();
  });
}

SumErrors RowGroup::SumErrorsOf() const {
  const double additions = pairs_.has_value() ? kAdditionsOfPairs
                           : SumsShallowly()  ? AdditionsInShallowRows(plan_.reduce0, plan_.statistic_reduce1)
                                              : AdditionsInRows(plan_.reduce0, plan_.statistic_reduce1);
  return {additions, summed_about_, sums_to_zero_};
}

bool RowGroup::SumsShallowly() const {
  return run_.to_nearest && !run_.wide() && run_.job.mask == nullptr &&
         order::ChunkSegments(plan_.statistic_reduce1) == 1 && plan_.statistic != Statistic::kAbsSum &&
         plan_.statistic != Statistic::kMaxAbs;
}

bool RowGroup::SumLargeInPairs(bool split) {
  const bool is_large = run_.to_nearest && run_.counted >= kLeastInPairs && run_.y != nullptr;
  if (!is_large || plan_.statistic != Statistic::kMeanVariance || !SumsAllInPairs(run_)) return false;
  if (run_.plan.cast_order != CastOrder::kAffineThenCast || !std::isfinite(run_.nearest.bound_factor)) return false;
  pairs_ = SumAllInPairs(run_, k0_, k1_, split);
  if (pairs_.has_value() && !(pairs_->sums.second.hi > 0)) pairs_.reset();
  return pairs_.has_value();
}

FinishedStatistics RowGroup::Sum(bool split) {
  summed_about_ = 0;
  sums_to_zero_ = false;
  if (SumLargeInPairs(split)) {
    const PairSums sums = {{pairs_->sums.first.hi, 0}, {pairs_->sums.second.hi, 0}};
    summed_about_ = pairs_->shift;
    return run_.Finish(plan_.statistic, sums, run_.counted, pairs_->shift, 1, Precision::kExact);
  }
  const int64_t chunks = order::GroupChunks(plan_.reduce0, plan_.statistic_reduce1);
  if (run_.counted == 0 || chunks == 0) return run_.FinishEmpty();
  ChunkSums sums(static_cast<size_t>(chunks));
  const Chunks all = {.rows = {.x = run_.X(Segment(0)),
                               .n = plan_.statistic_reduce1,
                               .segments = plan_.reduce0,
                               .stride = plan_.keep1 * plan_.reduce1,
                               .mask = run_.job.mask,
                               .mask_stride = plan_.reduce1},
                      .count = chunks,
                      .sums = sums.data(),
                      .split = split};
  if (run_.wide()) return SumWide(all);
  const Precision precision = run_.precision();
  const auto finish = [&](double shift) {
    return run_.Finish(plan_.statistic, SumsAbout(all, precision, shift, 1), run_.counted, shift, 1, precision);
  };
  const FinishedStatistics result = finish(FirstShiftOf(precision));
  return result.shift_too_far ? finish(result.better_shift) : result;
}

FinishedStatistics RowGroup::SumWide(const Chunks& all) {
  const Magnitude magnitude = Measure(all);
  if (!SumsPowers(plan_.statistic) && !magnitude.finite()) {
    const PairSums none = NonFiniteSums(plan_.statistic, magnitude);
    return run_.Finish(plan_.statistic, none, run_.counted, 0, 1, Precision::kExact);
  }
  const double scale = ScaleFor(magnitude, run_.rule);
  if (SumsPowers(plan_.statistic)) {
    const double largest = magnitude.largest() * scale;
    sums_to_zero_ = WideSumsAreZero(plan_.statistic, {}, magnitude, scale);
    if (plan_.statistic == Statistic::kPowerSum) SumPowers(all, scale, largest);
    run_.Fold(all.sums, all.count, 1);
    return run_.Finish(plan_.statistic, all.sums[0], run_.counted, largest, scale, Precision::kExact);
  }
  const auto finish = [&](double shift) {
    const PairSums total = SumsAbout(all, Precision::kExact, shift, scale);
    sums_to_zero_ = WideSumsAreZero(plan_.statistic, total.second, magnitude, scale);
    return run_.Finish(plan_.statistic, total, run_.counted, shift, scale, Precision::kExact);
  };
  const FinishedStatistics result = finish(FirstShiftOf(Precision::kExact) * scale);
  return result.shift_too_far ? finish(result.better_shift) : result;
}

void RowGroup::ShareOut(const Chunks& all, absl::FunctionRef<void(int64_t, int64_t)> body) const {
  if (all.split) {
    run_.pool.ParallelFor(all.count, run_.Grain(order::kRowChunk), body);
  } else {
    body(0, all.count);
  }
}

PairSums RowGroup::SumsAbout(const Chunks& all, Precision precision, double shift, double scale) {
  summed_about_ = shift / scale;
  const RowChunks& rows = all.rows;
  ShareOut(all, [&](int64_t begin, int64_t end) {
    if (!SumsShallowly()) {
      return ReduceRowChunks({plan_.statistic, precision, shift, scale}, rows, begin, end, all.sums);
    }
    for (int64_t i = begin; i < end; ++i) {
      const order::Chunk chunk = order::ChunkAt(rows.segments, rows.n, i);
      all.sums[i] = ReduceShallowly(rows.x.At(chunk.segment * rows.stride + chunk.at), chunk.length, shift);
    }
  });
  run_.Fold(all.sums, all.count, 1);
  sums_to_zero_ = all.sums[0].second.hi == 0;
  return all.sums[0];
}

double RowGroup::FirstShiftOf(Precision precision) const {
  if (plan_.statistic != Statistic::kMeanVariance) return 0.0;
  const int64_t first = run_.first_counted;
  const Elements x = run_.X(Segment(first / plan_.reduce1) + first % plan_.reduce1);
  return FirstShift(precision, x, plan_.statistic_reduce1, run_.job.mask != nullptr);
}

void RowGroup::SumPowers(const Chunks& all, double scale, double largest) const {
  const RowChunks& rows = all.rows;
  ShareOut(all, [&](int64_t begin, int64_t end) {
    // Groups may be short and many, so short ones must not allocate.
    absl::InlinedVector<double, 256> high(static_cast<size_t>(std::min(order::kRowChunk, rows.segments * rows.n)));
    absl::InlinedVector<double, 256> low(high.size());
    for (int64_t i = begin; i < end; ++i) {
      const order::Chunk chunk = order::ChunkAt(rows.segments, rows.n, i);
      for (int64_t s = 0; s < chunk.segments; ++s) {
        PowerTerms(rows.x.At((chunk.segment + s) * rows.stride + chunk.at), chunk.length,
                   {scale, largest, run_.rule.p, run_.to_nearest}, high.data() + s * chunk.length,
                   low.data() + s * chunk.length);
      }
      const RowChunks terms = {.x = {DType::kF64, high.data(), low.data()},
                               .n = chunk.length,
                               .segments = chunk.segments,
                               .stride = chunk.length};
      ReduceRowChunks({Statistic::kAbsSum, Precision::kExact}, terms, 0, 1, all.sums + i);
    }
  });
}

Magnitude RowGroup::Measure(const Chunks& all) const {
  std::vector<Magnitude> magnitudes(static_cast<size_t>(all.count));
  const RowChunks& rows = all.rows;
  ShareOut(all, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const order::Chunk chunk = order::ChunkAt(rows.segments, rows.n, i);
      for (int64_t r0 = chunk.segment; r0 < chunk.segment + chunk.segments; ++r0) {
        const auto* const x = static_cast<const double*>(rows.x.At(r0 * rows.stride + chunk.at).data);
        const uint8_t* const mask = rows.mask == nullptr ? nullptr : rows.mask + r0 * rows.mask_stride + chunk.at;
        magnitudes[static_cast<size_t>(i)].Include(MeasureRow(x, mask, chunk.length));
      }
    }
  });
  for (size_t i = 1; i < magnitudes.size(); ++i) magnitudes[0].Include(magnitudes[i]);
  return magnitudes[0];
}

void RowGroup::ApplyPiece(int64_t r0, int64_t r0_end, int64_t begin, int64_t end,
                          const FinishedStatistics& group) const {
  if (run_.to_nearest) return ApplyToNearest(r0, r0_end, begin, end, group);
  const bool per_element = plan_.affine_index == AffineIndex::kElement;
  ApplySpan span;
  span.y_dtype = plan_.dtype;
  span.statistics = &group.statistics;
  span.centring = CentringOf(plan_.statistic, group.statistics);
  span.may_be_nan = !group.finite || plan_.statistic_reduce1 != plan_.reduce1 || run_.job.mask != nullptr;
  span.cast_order = plan_.cast_order;
  span.parameters_per_column = per_element;
  span.stream = run_.stream;
  // Fetches the next group. If it has several segments, it must be small enough to stay in L1 until its turn comes.
  const int64_t group_bytes = plan_.reduce0 * plan_.reduce1 * SizeOf(plan_.dtype);
  if (run_.prefetch && (plan_.reduce0 == 1 || group_bytes <= kPrefetchGroupBytes)) span.prefetch = plan_.reduce1;
  span.columns = end - begin;
  if (end - begin > plan_.channel_run && !per_element && !run_.parameters.absent()) {
    span.parameter_run = plan_.channel_run;
  }
  span.stride = plan_.keep1 * plan_.reduce1;
  // Parameters that are one per element differ from segment to segment.
  const int64_t step = per_element ? 1 : r0_end - r0;
  for (; r0 < r0_end; r0 += step) {
    span.positions = step;
    span.x = run_.X(Segment(r0) + begin);
    span.y = static_cast<char*>(run_.y) + (Segment(r0) + begin) * SizeOf(plan_.dtype);
    span.parameters = run_.parameters.At(per_element ? r0 * plan_.reduce1 + begin
                                                     : k1_ * plan_.channels_per_keep1 + begin / plan_.channel_run);
    cpu::Apply(span);
  }
}

void RowGroup::ApplyToNearest(int64_t r0, int64_t r0_end, int64_t begin, int64_t end,
                              const FinishedStatistics& group) const {
  const bool per_element = plan_.affine_index == AffineIndex::kElement;
  const GroupBound bound(run_, SumErrorsOf(), group);
  if (LooksQuickly(run_, bound)) {
    return ApplyGroupQuickly(run_, group, bound, {k0_, k1_, r0, r0_end, begin, end}, [&](const NearestPlace& place) {
      if (pairs_.has_value()) return nearest_->Add(place);
      nearest_->Decide(place.r0, place.k1, place.r1, place.x);
    });
  }
  // The rounding of y is no part of the bound of narrow elements, see kRoundingOfY.
  const ElementBound elements = bound.Of(run_, run_.largest_weight, run_.wide() ? run_.largest_bias : 0);
  NearestSpan span;
  span.y_dtype = plan_.dtype;
  span.scale = &group.statistics.scale;
  span.delta_lo = &group.statistics.delta.lo;
  span.inverse_lo = &group.statistics.inverse.lo;
  span.columns = end - begin;
  span.stride = plan_.keep1 * plan_.reduce1;
  span.centring = CentringOf(plan_.statistic, group.statistics);
  span.shift = &group.statistics.shift;
  span.delta = &group.statistics.delta.hi;
  span.inverse = &group.statistics.inverse.hi;
  span.fixed = &elements.fixed;
  span.relative = &elements.relative;
  if (std::isfinite(run_.nearest.bound_factor)) span.rounding *= run_.nearest.bound_factor;
  span.parameters_along = per_element ? Along::kColumns : Along::kNothing;
  if (end - begin > plan_.channel_run && !per_element && !run_.parameters.absent()) {
    span.parameter_run = plan_.channel_run;
  }
  span.cast_order = plan_.cast_order;
  int64_t first = r0;
  auto report = [&](const Undecided* undecided, int64_t n) {
    for (int64_t i = 0; i < n && bound.is_finite; ++i) {
      nearest_->Decide(first + undecided[i].position, k1_, begin + undecided[i].column, undecided[i].x);
    }
  };
  span.ReportTo(report);
  const int64_t step = per_element ? 1 : r0_end - r0;
  for (; first < r0_end; first += step) {
    span.positions = step;
    span.x = run_.X(Segment(first) + begin);
    span.y = static_cast<char*>(run_.y) + (Segment(first) + begin) * SizeOf(plan_.dtype);
    const Parameters parameters = run_.parameters.At(
        per_element ? first * plan_.reduce1 + begin : k1_ * plan_.channels_per_keep1 + begin / plan_.channel_run);
    span.weight = parameters.weight;
    span.bias = parameters.bias;
    cpu::ApplyNearest(span);
  }
}

}  // namespace normd::cpu
