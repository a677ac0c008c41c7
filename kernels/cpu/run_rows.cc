// The walker of Pattern::kRows (the innermost extent is reduced): group by group, or whole rows in blocks.
#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "kernels/cpu/beyond_fast.h"
#include "kernels/cpu/row_group.h"
#include "kernels/cpu/run.h"
#include "kernels/summation_order.h"

namespace normd::cpu {
namespace {

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
          .rule = run.rule,
          .parameters = run.parameters,
          .per_element = plan.affine_index == AffineIndex::kElement,
          .stream = run.stream,
          .prefetch = run.prefetch ? rows * plan.reduce1 : 0,
          .wants_results = run.StoresGroups()};
}

// Runs a group by itself; `split` cuts it into tasks.
void RunOne(const Run& run, int64_t i, bool split) {
  RowGroup group(run, i);
  const FinishedStatistics statistics = group.Reduce(split);
  if (!IsBeyondFast(run, statistics)) return group.Apply(statistics, split);
  const int64_t k1 = i % run.plan.keep1;
  const NearestRun nearest(run, i / run.plan.keep1, {k1, k1 + 1});
  RowGroup again(nearest.run(), nearest.FirstGroup());
  again.Apply(again.Reduce(split), split);
  nearest.WriteY();
}

// Runs the groups [begin, end), which are adjacent rows, in blocks under FAST. REQUIRES: TakesWholeRows(run).
void RunFastRows(const Run& run, int64_t begin, int64_t end) {
  RowBlock block = BlockOf(run);
  const int64_t rows = block.rows;
  FinishedStatistics results[RowBlock::kMaxRows];
  for (; begin < end; begin += block.rows) {
    const int64_t offset = begin * block.n;
    block.rows = std::min(rows, end - begin);
    block.x = run.X(offset);
    block.y = static_cast<char*>(run.y) + offset * SizeOf(run.plan.dtype);
    const uint32_t done = NormaliseRows(block, results);
    for (int64_t row = 0; row < block.rows; ++row) {
      if ((done >> row & 1) == 0) {
        RunOne(run, begin + row, false);
      } else if (block.wants_results) {
        run.StoreGroup(begin + row, results[row]);
      }
    }
  }
}

// Runs the groups [begin, end), each on this thread.
void RunGroups(const Run& run, int64_t begin, int64_t end) {
  const auto one_of = [](const Run& of, int64_t i) { RunOne(of, i, false); };
  const auto one = [&](int64_t i) { RunOne(run, i, false); };
  if (run.to_nearest && TakesNearestRows(run)) {
    RunNearestRows(run, BlockOf(run), {begin, end}, one_of);
  } else if (!run.to_nearest && TakesWholeRows(run)) {
    RunFastRows(run, begin, end);
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
         !TakesGivenChannels(run) && !SplitsGroups(run);
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
  for (int64_t i = 0; i < groups; ++i) RunOne(run, i, true);
}

}  // namespace normd::cpu
