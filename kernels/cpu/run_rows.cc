// The walker of Pattern::kRows (the innermost extent is reduced): group by group, or whole rows in blocks.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "kernels/cpu/nearest_channels.h"
#include "kernels/cpu/nearest_group.h"
#include "kernels/cpu/run.h"
#include "kernels/summation_order.h"

namespace normd::cpu {
namespace {

// Groups of several segments are fetched ahead up to this size: half of L1, which they share with the group at hand.
constexpr int64_t kPrefetchGroupBytes = 16 << 10;

// The statistics group (k0, k1), which is plan.reduce0 contiguous segments of plan.reduce1 elements.
class RowGroup {
 public:
  RowGroup(const Run& run, int64_t group)
      : run_(run), plan_(run.plan), group_(group), k0_(group / plan_.keep1), k1_(group % plan_.keep1) {
    if (run.nearest.on) nearest_ = std::make_unique<NearestGroups>(run, k0_, k1_, 1);
  }

  // Returns the statistics of the group, given or summed, and stores the group's outputs. `split` cuts the sums into
  // tasks.
  FinishedStatistics Reduce(bool split) const {
    FinishedStatistics result;
    if (plan_.given_statistics) {
      result = run_.Given(k1_);
    } else {
      result = Sum(split);
    }
    run_.StoreGroup(group_, result);
    if (run_.nearest.on && run_.StoresGroups()) {
      nearest_->StoreGroup(k1_, result, GroupBound(run_, SumErrorsOf(), result));
    }
    if (run_.is_16bit() && !run_.nearest.on) Calculate16BitInF32(&result);
    return result;
  }

  // Runs the apply pass of the group; `split` cuts it into tasks.
  void Apply(const FinishedStatistics& group, bool split) const {
    if (run_.y == nullptr || plan_.reduce1 == 0) return;
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

 private:
  // The index of the first element of segment r0.
  int64_t Segment(int64_t r0) const { return run_.IndexOf(k0_, r0, k1_, 0); }

  // What the sums have gone through, after Sum().
  SumErrors SumErrorsOf() const {
    const double additions = SumsShallowly() ? AdditionsInShallowRows(plan_.reduce0, plan_.statistic_reduce1)
                                             : AdditionsInRows(plan_.reduce0, plan_.statistic_reduce1);
    return {additions, summed_about_, sums_to_zero_};
  }

  bool SumsShallowly() const {
    return run_.nearest.on && !run_.wide() && run_.job.mask == nullptr &&
           order::ChunkSegments(plan_.statistic_reduce1) == 1 && plan_.statistic != Statistic::kAbsSum &&
           plan_.statistic != Statistic::kMaxAbs;
  }

  // The statistics of the group, summed.
  FinishedStatistics Sum(bool split) const {
    summed_about_ = 0;
    sums_to_zero_ = false;
    const int64_t chunks = order::GroupChunks(plan_.reduce0, plan_.statistic_reduce1);
    if (run_.counted == 0 || chunks == 0) return run_.FinishEmpty();
    const RowChunks rows = {.x = run_.X(Segment(0)),
                            .n = plan_.statistic_reduce1,
                            .segments = plan_.reduce0,
                            .stride = plan_.keep1 * plan_.reduce1,
                            .mask = run_.job.mask,
                            .mask_stride = plan_.reduce1};
    const auto share_out = [&](absl::FunctionRef<void(int64_t, int64_t)> body) {
      if (split) {
        run_.pool.ParallelFor(chunks, run_.Grain(order::kRowChunk), body);
      } else {
        body(0, chunks);
      }
    };
    absl::InlinedVector<PairSums, RowBlock::kMaxChunks> sums(static_cast<size_t>(chunks));
    const auto sums_about = [&](Precision precision, double shift, double scale) {
      summed_about_ = shift / scale;
      share_out([&](int64_t begin, int64_t end) {
        if (!SumsShallowly()) {
          return ReduceRowChunks({plan_.statistic, precision, shift, scale}, rows, begin, end, sums.data());
        }
        for (int64_t i = begin; i < end; ++i) {
          const order::Chunk chunk = order::ChunkAt(rows.segments, rows.n, i);
          sums[static_cast<size_t>(i)] =
              ReduceShallowly(rows.x.At(chunk.segment * rows.stride + chunk.at), chunk.length, shift);
        }
      });
      run_.Fold(sums.data(), chunks, 1);
      sums_to_zero_ = sums[0].second.hi == 0;
      return sums[0];
    };
    const auto first_shift = [&](Precision precision) {
      if (plan_.statistic != Statistic::kMeanVariance) return 0.0;
      const int64_t first = run_.first_counted;
      const Elements x = run_.X(Segment(first / plan_.reduce1) + first % plan_.reduce1);
      return FirstShift(precision, x, plan_.statistic_reduce1, run_.job.mask != nullptr);
    };
    if (!run_.wide()) {
      return FinishNarrowGroup(plan_.statistic, run_.rule, run_.precision(), static_cast<double>(run_.counted),
                               first_shift,
                               [&](Precision precision, double shift) { return sums_about(precision, shift, 1); });
    }
    const Magnitude magnitude = Measure(rows, chunks, share_out);
    if (SumsPowers(plan_.statistic)) {
      const double scale = ScaleFor(magnitude, run_.rule);
      const double largest = magnitude.largest() * scale;
      sums_to_zero_ = WideSumsAreZero(plan_.statistic, {}, magnitude, scale);
      if (plan_.statistic == Statistic::kPowerSum) SumPowers(rows, scale, largest, share_out, sums.data());
      run_.Fold(sums.data(), chunks, 1);
      return run_.Finish(plan_.statistic, sums[0], run_.counted, largest, scale, Precision::kExact);
    }
    if (!magnitude.finite()) {
      const PairSums none = NonFiniteSums(plan_.statistic, magnitude);
      return run_.Finish(plan_.statistic, none, run_.counted, 0, 1, Precision::kExact);
    }
    const double scale = ScaleFor(magnitude, run_.rule);
    const auto finish = [&](double shift) {
      const PairSums total = sums_about(Precision::kExact, shift, scale);
      sums_to_zero_ = WideSumsAreZero(plan_.statistic, total.second, magnitude, scale);
      return run_.Finish(plan_.statistic, total, run_.counted, shift, scale, Precision::kExact);
    };
    const FinishedStatistics result = finish(first_shift(Precision::kExact) * scale);
    return result.shift_too_far ? finish(result.better_shift) : result;
  }

  // A function that calls its argument for ranges of chunks, on this thread or on the threads of the pool.
  using ShareOut = absl::FunctionRef<void(absl::FunctionRef<void(int64_t, int64_t)>)>;

  // Writes the sums of kPowerSum's terms, chunk by chunk. Methods with this statistic take no mask.
  void SumPowers(const RowChunks& rows, double scale, double largest, ShareOut share_out, PairSums* sums) const {
    share_out([&](int64_t begin, int64_t end) {
      // Groups may be short and many, so short ones must not allocate.
      absl::InlinedVector<double, 256> high(static_cast<size_t>(std::min(order::kRowChunk, rows.segments * rows.n)));
      absl::InlinedVector<double, 256> low(high.size());
      for (int64_t i = begin; i < end; ++i) {
        const order::Chunk chunk = order::ChunkAt(rows.segments, rows.n, i);
        for (int64_t s = 0; s < chunk.segments; ++s) {
          PowerTerms(rows.x.At((chunk.segment + s) * rows.stride + chunk.at), chunk.length,
                     {scale, largest, run_.rule.p, run_.nearest.on}, high.data() + s * chunk.length,
                     low.data() + s * chunk.length);
        }
        const RowChunks terms = {.x = {DType::kF64, high.data(), low.data()},
                                 .n = chunk.length,
                                 .segments = chunk.segments,
                                 .stride = chunk.length};
        ReduceRowChunks({Statistic::kAbsSum, Precision::kExact}, terms, 0, 1, sums + i);
      }
    });
  }

  // The magnitude of a group of f64 elements.
  Magnitude Measure(const RowChunks& rows, int64_t chunks, ShareOut share_out) const {
    std::vector<Magnitude> magnitudes(static_cast<size_t>(chunks));
    share_out([&](int64_t begin, int64_t end) {
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

  // Applies elements [begin, end) of the segments [r0, r0_end). They have whole channels, a part of one channel, or one
  // parameter for each element.
  void ApplyPiece(int64_t r0, int64_t r0_end, int64_t begin, int64_t end, const FinishedStatistics& group) const {
    if (run_.nearest.on) return ApplyToNearest(r0, r0_end, begin, end, group);
    const bool per_element = plan_.affine_index == AffineIndex::kElement;
    ApplySpan span;
    span.y_dtype = plan_.dtype;
    span.statistics = &group.statistics;
    span.in_f32 = group.elements_in_f32 && run_.parameters.fit_f32;
    span.centring = CentringOf(plan_.statistic, group.statistics);
    span.may_be_nan = !group.finite || !run_.parameters.fit_f32 || plan_.statistic_reduce1 != plan_.reduce1 ||
                      run_.job.mask != nullptr;
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

  // The same, each element rounded to the nearest value.
  void ApplyToNearest(int64_t r0, int64_t r0_end, int64_t begin, int64_t end, const FinishedStatistics& group) const {
    const bool per_element = plan_.affine_index == AffineIndex::kElement;
    const GroupBound bound(run_, SumErrorsOf(), group);
    if (LooksQuickly(run_, bound)) {
      return ApplyGroupQuickly(run_, group, bound, {k0_, k1_, r0, r0_end, begin, end}, nearest_.get());
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

  const Run& run_;
  const NormPlan& plan_;
  const int64_t group_, k0_, k1_;
  mutable double summed_about_ = 0;         // the shift of the sums
  mutable bool sums_to_zero_ = false;       // see SumErrors::is_zero
  std::unique_ptr<NearestGroups> nearest_;  // if y is rounded to the nearest value
};

// True if both passes over whole rows run in one call of the vector kernels (NormaliseRows).
bool TakesWholeRows(const Run& run) {
  const NormPlan& plan = run.plan;
  // Where a mean is subtracted, one w for all elements is a part of the factor (Form::kScaledOnce).
  const bool one_for_all = plan.parameter_length == 1 && plan.statistic != Statistic::kMeanVariance;
  return !run.wide() && run.y != nullptr && run.job.mask == nullptr && !plan.given_statistics && plan.reduce0 == 1 &&
         plan.cast_order == CastOrder::kAffineThenCast && plan.statistic_reduce1 > 0 &&
         plan.statistic_reduce1 <= RowBlock::kMaxChunks * order::kRowChunk &&
         (run.parameters.absent() || plan.affine_index == AffineIndex::kElement || one_for_all);
}

// The same to the nearest value (NormaliseRowsToNearest).
bool TakesNearestRows(const Run& run) {
  const bool is_small = run.largest_bias <= 0x1p+100;
  return TakesWholeRows(run) && run.plan.statistic_reduce1 == run.plan.reduce1 && run.parameters.fit_f32 &&
         (!run.is_16bit() || (run.parameters.equal_f32 && is_small)) && std::isfinite(run.nearest.bound_factor);
}

// Blocks of whole rows, without the addresses of any. REQUIRES: TakesWholeRows(run).
RowBlock BlockOf(const Run& run) {
  // The rows of a block stay in L1 between the two passes. Two rows share the loads of the parameters, which pays even
  // where they have to stay in L2, but not where the rows come from memory.
  constexpr int64_t kBlockElements = 4 << 10;
  constexpr int64_t kPairElements = 16 << 10;
  const NormPlan& plan = run.plan;
  int64_t rows = std::clamp<int64_t>(kBlockElements / plan.reduce1, 1, RowBlock::kMaxRows);
  if (!run.stream && plan.reduce1 <= kPairElements) rows += rows % 2;
  return {.rows = rows,
          .n = plan.reduce1,
          .counted = plan.statistic_reduce1,
          .statistic = plan.statistic,
          .precision = run.precision(),
          .rule = run.rule,
          .parameters = run.parameters,
          .per_element = plan.affine_index == AffineIndex::kElement,
          .stream = run.stream,
          .prefetch = run.prefetch ? rows * plan.reduce1 : 0,
          .wants_results = run.StoresGroups()};
}

// Runs the groups [begin, end), which are adjacent rows, in blocks. REQUIRES: TakesWholeRows(run).
void RunWholeRows(const Run& run, int64_t begin, int64_t end) {
  RowBlock block = BlockOf(run);
  const int64_t rows = block.rows;
  FinishedStatistics results[RowBlock::kMaxRows];
  for (; begin < end; begin += block.rows) {
    const int64_t offset = begin * block.n;
    block.rows = std::min(rows, end - begin);
    block.x = run.X(offset);
    block.y = static_cast<char*>(run.y) + offset * SizeOf(run.plan.dtype);
    NormaliseRows(block, results);
    for (int64_t row = 0; block.wants_results && row < block.rows; ++row) run.StoreGroup(begin + row, results[row]);
  }
}

// Runs the groups [begin, end), each on this thread.
void RunGroups(const Run& run, int64_t begin, int64_t end) {
  const auto one_of = [](const Run& of, int64_t i) {
    const RowGroup group(of, i);
    group.Apply(group.Reduce(false), false);
  };
  const auto one = [&](int64_t i) { one_of(run, i); };
  if (run.nearest.on && TakesNearestRows(run)) {
    RunNearestRows(run, BlockOf(run), {begin, end}, one_of);
  } else if (!run.nearest.on && TakesWholeRows(run)) {
    RunWholeRows(run, begin, end);
  } else if (TakesChannels(run)) {
    RunChannels(run, begin, end, one);
  } else {
    for (int64_t i = begin; i < end; ++i) one(i);
  }
}

// Few large groups are split inside; many groups are shared out whole. The bits are the same either way.
bool SplitsGroups(const Run& run) {
  return run.SplitsTasks(run.plan.StatisticsGroups(), std::max<int64_t>(1, run.plan.reduce0 * run.plan.reduce1));
}

// A position in scattered bytes. Borrows them.
class ScatteredRows {
 public:
  ScatteredRows(absl::Span<const normd::Segment> segments, int64_t offset) : rest_(segments) { Skip(offset); }

  // The number of bytes from here to the end of the piece.
  int64_t ContiguousBytes() const { return rest_.empty() ? 0 : static_cast<int64_t>(rest_.front().size()) - offset_; }
  const void* data() const { return rest_.empty() ? nullptr : rest_.front().data() + offset_; }
  absl::Span<const normd::Segment> rest() const { return rest_; }
  int64_t offset() const { return offset_; }  // in the first piece of rest()

  void Skip(int64_t bytes) {
    offset_ += bytes;
    while (!rest_.empty() && offset_ >= static_cast<int64_t>(rest_.front().size())) {
      offset_ -= static_cast<int64_t>(rest_.front().size());
      rest_.remove_prefix(1);
    }
  }

 private:
  absl::Span<const normd::Segment> rest_;
  int64_t offset_ = 0;
};

}  // namespace

FinishedStatistics ReduceContiguous(const Run& run, Statistic statistic, int64_t offset, int64_t n) {
  const Elements x = run.X(offset);
  double scale = 1;
  if (run.wide()) {
    const Magnitude magnitude = MeasureRow(static_cast<const double*>(x.data), nullptr, n);
    if (!magnitude.finite()) {
      return run.Finish(statistic, NonFiniteSums(statistic, magnitude), n, 0, 1, Precision::kExact);
    }
    scale = ScaleFor(magnitude, run.rule);
  }
  const int64_t chunks = order::RowChunks(n);
  absl::InlinedVector<PairSums, RowBlock::kMaxChunks> sums(static_cast<size_t>(std::max<int64_t>(1, chunks)));
  ReduceRowChunks({.statistic = statistic, .scale = scale}, {.x = x, .n = n}, 0, chunks, sums.data());
  run.Fold(sums.data(), static_cast<int64_t>(sums.size()), 1);
  return run.Finish(statistic, sums[0], n, 0, scale, Precision::kExact);
}

bool AcceptsScattered(const NormPlan& plan) {
  // Longer rows hardly ever lie in one piece of a message (64 KiB), and making them contiguous needs a buffer for each
  // thread: one copy of x is then as good.
  constexpr int64_t kMaxRowBytes = 128 << 10;
  return plan.pattern == Pattern::kRows && !plan.counts_samples && !plan.exact_sums && plan.reduce0 == 1 &&
         plan.permutation.empty() && plan.power_groups == 0 && !SumsPowers(plan.statistic) && plan.elements > 0 &&
         plan.reduce1 * SizeOf(plan.dtype) <= kMaxRowBytes;
}

void RunScatteredRows(const Run& run) {
  const int64_t row_bytes = run.plan.reduce1 * SizeOf(run.plan.dtype);
  const absl::Span<const normd::Segment> segments = run.job.x_segments;
  run.pool.ParallelFor(run.plan.StatisticsGroups(), run.Grain(run.plan.reduce1), [&](int64_t begin, int64_t end) {
    std::unique_ptr<std::byte[]> row;  // a row that straddles two pieces
    Run part = run;
    ScatteredRows rows(segments, begin * row_bytes);
    for (int64_t group = begin; group < end;) {
      int64_t count = std::min(end - group, rows.ContiguousBytes() / row_bytes);
      part.x.data = rows.data();
      part.x_begin = group * run.plan.reduce1;
      if (count == 0) {
        if (row == nullptr) row = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(row_bytes));
        GatherSegments(rows.rest(), rows.offset(), row_bytes, row.get());
        part.x.data = row.get();
        count = 1;
      }
      part.given_x.data = part.x.data;
      RunGroups(part, group, group + count);
      group += count;
      rows.Skip(count * row_bytes);
    }
    if (run.stream) FlushStreams();
  });
}

bool ReadsRowsOnce(const Run& run) {
  return run.plan.pattern == Pattern::kRows && run.plan.permutation.empty() && TakesNearestRows(run) &&
         !SplitsGroups(run);
}

void RunRows(const Run& run) {
  if (TakesGivenChannels(run)) return RunGivenChannels(run);
  const NormPlan& plan = run.plan;
  const int64_t groups = plan.StatisticsGroups();
  const int64_t group_elements = std::max<int64_t>(1, plan.reduce0 * plan.reduce1);
  if (!SplitsGroups(run)) {
    run.pool.ParallelFor(groups, run.Grain(group_elements), [&](int64_t begin, int64_t end) {
      RunGroups(run, begin, end);
      if (run.stream) FlushStreams();
    });
    return;
  }
  for (int64_t i = 0; i < groups; ++i) {
    const RowGroup group(run, i);
    group.Apply(group.Reduce(true), true);
  }
}

}  // namespace normd::cpu
