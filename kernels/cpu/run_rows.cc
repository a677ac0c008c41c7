// Walks plans whose innermost extent is reduced.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "kernels/cpu/run.h"
#include "kernels/order.h"

namespace normd::cpu {
namespace {

// The statistic set (k0, k1): plan.reduce0 segments, each contiguous.
class RowSet {
 public:
  RowSet(const Run& run, int64_t set)
      : run_(run), plan_(run.plan), set_(set), k0_(set / plan_.keep1), k1_(set % plan_.keep1) {}

  // Statistics of the set, given or summed; `split` cuts the sums into tasks. Stores the set's outputs.
  SetStatistics Reduce(bool split) const {
    if (plan_.given_statistics) {
      const double* mean = run_.job.given_mean == nullptr ? nullptr : run_.job.given_mean + k1_;
      const FinishedSet given = GivenStatistics(run_.rule, mean, run_.job.given_variance[k1_], run_.wide());
      run_.StoreSet(set_, given);
      return given.statistics;
    }
    const FinishedSet result = Sum(split);
    run_.StoreSet(set_, result);
    return result.statistics;
  }

  void Apply(const SetStatistics& statistics, bool split) const {
    if (run_.y == nullptr || plan_.reduce1 == 0) return;
    const int64_t piece = split ? std::min(plan_.reduce1, run_.grain_elements) : plan_.reduce1;
    const int64_t pieces = order::CeilDiv(plan_.reduce1, piece);
    const auto apply = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t from = i % pieces * piece;
        ApplyRange(i / pieces, from, std::min(plan_.reduce1, from + piece), statistics);
      }
    };
    const int64_t tasks = plan_.reduce0 * pieces;
    if (split) {
      run_.pool.ParallelFor(tasks, run_.Grain(piece), apply);
    } else {
      apply(0, tasks);
    }
  }

 private:
  int64_t Segment(int64_t r0) const { return ((k0_ * plan_.reduce0 + r0) * plan_.keep1 + k1_) * plan_.reduce1; }

  FinishedSet Sum(bool split) const {
    const int64_t per_segment = order::RowChunks(plan_.statistic_reduce1);
    const int64_t chunks = plan_.reduce0 * per_segment;
    if (run_.counted == 0 || chunks == 0) return run_.Finish(plan_.statistic, {}, 0, 0, 1);
    // `visit(chunk, x, mask, n)` for every chunk of the set, numbered through its segments.
    const auto for_chunks = [&](auto visit) {
      const auto range = [&](int64_t begin, int64_t end) {
        for (int64_t chunk = begin; chunk < end; ++chunk) {
          const int64_t r0 = chunk / per_segment;
          const int64_t at = chunk % per_segment * order::kRowChunk;
          const int64_t n = std::min(order::kRowChunk, plan_.statistic_reduce1 - at);
          const uint8_t* mask = run_.job.mask == nullptr ? nullptr : run_.job.mask + r0 * plan_.reduce1 + at;
          visit(chunk, run_.X(Segment(r0) + at), mask, n);
        }
      };
      if (split) {
        run_.pool.ParallelFor(chunks, run_.Grain(order::kRowChunk), range);
      } else {
        range(0, chunks);
      }
    };
    std::vector<PairSums> sums(static_cast<size_t>(chunks));
    double scale = 1;
    if (run_.wide()) {
      std::vector<Magnitude> magnitudes(static_cast<size_t>(chunks));
      for_chunks([&](int64_t chunk, const Elements& x, const uint8_t* mask, int64_t n) {
        magnitudes[static_cast<size_t>(chunk)] = MeasureRow(static_cast<const double*>(x.data), mask, n);
      });
      for (size_t i = 1; i < magnitudes.size(); ++i) magnitudes[0].Include(magnitudes[i]);
      const Magnitude& all = magnitudes[0];
      if (!all.finite()) {
        return run_.Finish(plan_.statistic, NonFiniteSums(plan_.statistic, all), run_.counted, 0, 1);
      }
      scale = ScaleFor(all, run_.rule);
    }
    const auto reduce = [&](double shift) {
      for_chunks([&](int64_t chunk, const Elements& x, const uint8_t* mask, int64_t n) {
        sums[static_cast<size_t>(chunk)] = ReduceRowChunk(plan_.statistic, x, mask, n, shift, scale);
      });
      run_.Fold(sums.data(), chunks, 1);
      return run_.Finish(plan_.statistic, sums[0], run_.counted, shift, scale);
    };
    const int64_t first = run_.first_counted;
    const bool centred = plan_.statistic == Statistic::kMeanVariance;
    const double shift = centred ? run_.FirstShift(Segment(first / plan_.reduce1) + first % plan_.reduce1) * scale : 0;
    const FinishedSet result = reduce(shift);
    return result.shift_too_far ? reduce(run_.RoundShift(result.better_shift)) : result;
  }

  // Elements [begin, end) of segment r0, in runs of one channel each.
  void ApplyRange(int64_t r0, int64_t begin, int64_t end, const SetStatistics& statistics) const {
    ApplySpan span;
    span.y_dtype = plan_.dtype;
    span.statistics = &statistics;
    span.cast_order = plan_.cast_order;
    span.parameters_per_column = plan_.affine_index == AffineIndex::kElement;
    const bool per_channel =
        plan_.affine_index == AffineIndex::kChannel && (run_.weight != nullptr || run_.bias != nullptr);
    while (begin < end) {
      const int64_t channel_end = per_channel ? (begin / plan_.channel_run + 1) * plan_.channel_run : end;
      const int64_t stop = std::min(end, channel_end);
      const int64_t parameter = plan_.affine_index == AffineIndex::kElement
                                    ? r0 * plan_.reduce1 + begin
                                    : k1_ * plan_.channels_per_keep1 + begin / plan_.channel_run;
      const int64_t offset = Segment(r0) + begin;
      span.x = run_.X(offset);
      span.y = static_cast<char*>(run_.y) + offset * SizeOf(plan_.dtype);
      span.columns = stop - begin;
      span.weight = run_.weight == nullptr ? nullptr : run_.weight + parameter;
      span.bias = run_.bias == nullptr ? nullptr : run_.bias + parameter;
      cpu::Apply(span);
      begin = stop;
    }
  }

  const Run& run_;
  const NormPlan& plan_;
  const int64_t set_, k0_, k1_;
};

// A place in scattered bytes.
class ScatteredRows {
 public:
  ScatteredRows(absl::Span<const normd::Segment> segments, int64_t offset) : rest_(segments) { Skip(offset); }

  // What follows in the same piece.
  int64_t BytesTogether() const { return rest_.empty() ? 0 : static_cast<int64_t>(rest_.front().size()) - offset_; }
  const void* data() const { return rest_.empty() ? nullptr : rest_.front().data() + offset_; }
  absl::Span<const normd::Segment> rest() const { return rest_; }
  int64_t offset() const { return offset_; }  // in the first of the rest

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

FinishedSet ReduceContiguous(const Run& run, Statistic statistic, int64_t offset, int64_t n) {
  const Elements x = run.X(offset);
  double scale = 1;
  if (run.wide()) {
    const Magnitude magnitude = MeasureRow(static_cast<const double*>(x.data), nullptr, n);
    if (!magnitude.finite()) return run.Finish(statistic, NonFiniteSums(statistic, magnitude), n, 0, 1);
    scale = ScaleFor(magnitude, run.rule);
  }
  std::vector<PairSums> sums(static_cast<size_t>(std::max<int64_t>(1, order::RowChunks(n))));
  for (int64_t at = 0; at < n; at += order::kRowChunk) {
    sums[static_cast<size_t>(at / order::kRowChunk)] =
        ReduceRowChunk(statistic, x.At(at), nullptr, std::min(order::kRowChunk, n - at), 0, scale);
  }
  run.Fold(sums.data(), static_cast<int64_t>(sums.size()), 1);
  return run.Finish(statistic, sums[0], n, 0, scale);
}

bool TakesSegments(const NormPlan& plan) {
  // Longer rows hardly ever lie in one piece of a message (64 KiB), and putting them together needs a buffer for each
  // thread: then one copy of x is as good.
  constexpr int64_t kMaxRowBytes = 128 << 10;
  return plan.pattern == Pattern::kRows && plan.reduce0 == 1 && plan.permutation.empty() && plan.power_groups == 0 &&
         plan.elements > 0 && plan.reduce1 * SizeOf(plan.dtype) <= kMaxRowBytes;
}

void RunScatteredRows(const Run& run) {
  const int64_t row_bytes = run.plan.reduce1 * SizeOf(run.plan.dtype);
  const absl::Span<const normd::Segment> segments = run.job.x_segments;
  run.pool.ParallelFor(run.plan.Sets(), run.Grain(run.plan.reduce1), [&](int64_t begin, int64_t end) {
    std::unique_ptr<std::byte[]> row;  // one that straddles
    Run part = run;
    ScatteredRows rows(segments, begin * row_bytes);
    for (int64_t set = begin; set < end;) {
      int64_t together = std::min(end - set, rows.BytesTogether() / row_bytes);
      part.x.data = rows.data();
      part.x_begin = set * run.plan.reduce1;
      if (together == 0) {
        if (row == nullptr) row = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(row_bytes));
        GatherSegments(rows.rest(), rows.offset(), row_bytes, row.get());
        part.x.data = row.get();
        together = 1;
      }
      for (const int64_t stop = set + together; set < stop; ++set) {
        const RowSet one(part, set);
        one.Apply(one.Reduce(false), false);
      }
      rows.Skip(together * row_bytes);
    }
  });
}

void RunRows(const Run& run) {
  const NormPlan& plan = run.plan;
  const int64_t sets = plan.Sets();
  const int64_t set_elements = std::max<int64_t>(1, plan.reduce0 * plan.reduce1);
  // Few large sets are split inside; many sets are shared out whole. The bits are the same.
  const bool split = sets < 2 * run.pool.threads() && set_elements > run.grain_elements;
  const auto run_sets = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const RowSet set(run, i);
      set.Apply(set.Reduce(split), split);
    }
  };
  if (split) {
    run_sets(0, sets);
  } else {
    run.pool.ParallelFor(sets, run.Grain(set_elements), run_sets);
  }
}

}  // namespace normd::cpu
