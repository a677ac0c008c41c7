// Walks plans whose innermost extent is kept: tiles of neighbouring columns, positions in blocks.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/run.h"
#include "kernels/order.h"

namespace normd::cpu {
namespace {

// Columns of one task: a tile's sums and statistics stay in L2 next to the rows that stream by.
constexpr int64_t kTileColumns = 1024;

// Statistic sets [begin, end) of keep1, for one k0: (end - begin) * reduce1 columns.
class ColumnTile {
 public:
  ColumnTile(const Run& run, int64_t k0, int64_t begin, int64_t end, const PositionScale* pre, int64_t pre_stride)
      : run_(run),
        plan_(run.plan),
        first_set_(k0 * plan_.keep1 + begin),
        first_k1_(begin),
        sets_(end - begin),
        columns_(sets_ * plan_.reduce1),
        stride_(plan_.keep1 * plan_.reduce1),
        offset_(k0 * plan_.reduce0 * stride_ + begin * plan_.reduce1),
        pre_(pre),
        pre_stride_(pre_stride),
        scale_(Columns(1)),
        shift_(Columns(0)),
        delta_hi_(Columns(0)),
        delta_lo_(Columns(0)),
        inverse_hi_(Columns(1)),
        inverse_lo_(Columns(0)) {}

  void Reduce(bool split) {
    if (plan_.given_statistics) {
      for (int64_t set = 0; set < sets_; ++set) {
        const int64_t k1 = first_k1_ + set;
        const double* mean = run_.job.given_mean == nullptr ? nullptr : run_.job.given_mean + k1;
        const FinishedSet given = GivenStatistics(run_.rule, mean, run_.job.given_variance[k1], run_.wide());
        run_.StoreSet(first_set_ + set, given);
        Spread(set, given.statistics);
      }
      return;
    }
    results_.resize(static_cast<size_t>(sets_));
    const bool empty = run_.counted == 0 || plan_.reduce0 == 0;
    if (!empty) Sum(split);
    for (int64_t set = 0; set < sets_; ++set) {
      FinishedSet& result = results_[static_cast<size_t>(set)];
      if (empty) result = run_.Finish(plan_.statistic, {}, 0, 0, 1);
      run_.StoreSet(first_set_ + set, result);
      Spread(set, result.statistics);
    }
  }

  void Apply(bool split) const {
    if (run_.y == nullptr || plan_.elements == 0) return;
    const ColumnStatistics statistics = {scale_.data(),    shift_.data(),      delta_hi_.data(),
                                         delta_lo_.data(), inverse_hi_.data(), inverse_lo_.data()};
    std::vector<double> weight_columns;
    std::vector<double> bias_columns;
    ApplySpan span;
    span.y_dtype = plan_.dtype;
    span.columns = columns_;
    span.stride = stride_;
    span.statistics_per_column = true;
    span.column_statistics = &statistics;
    span.pre_stride = pre_stride_;
    span.cast_order = plan_.cast_order;
    span.parameters_per_position = plan_.affine_index == AffineIndex::kElement;
    span.parameters_per_column = !span.parameters_per_position;
    const double* weight = ParameterColumns(run_.weight, weight_columns);
    const double* bias = ParameterColumns(run_.bias, bias_columns);
    const auto apply = [&](int64_t begin, int64_t end) {
      ApplySpan part = span;
      const int64_t offset = offset_ + begin * stride_;
      const int64_t parameter = span.parameters_per_position ? begin : 0;
      part.x = run_.x.At(offset);
      part.y = static_cast<char*>(run_.y) + offset * SizeOf(plan_.dtype);
      part.positions = end - begin;
      part.pre = pre_ == nullptr ? nullptr : pre_ + begin * pre_stride_;
      part.weight = weight == nullptr ? nullptr : weight + parameter;
      part.bias = bias == nullptr ? nullptr : bias + parameter;
      cpu::Apply(part);
    };
    if (split) {
      run_.pool.ParallelFor(plan_.reduce0, run_.Grain(columns_), apply);
    } else {
      apply(0, plan_.reduce0);
    }
  }

 private:
  std::vector<double> Columns(double value) const { return std::vector<double>(static_cast<size_t>(columns_), value); }

  // `statistics` of a set to each of its columns.
  void Spread(int64_t set, const SetStatistics& statistics) {
    for (int64_t c = set * plan_.reduce1; c < (set + 1) * plan_.reduce1; ++c) {
      const auto i = static_cast<size_t>(c);
      scale_[i] = statistics.scale;
      shift_[i] = statistics.shift;
      delta_hi_[i] = statistics.delta.hi;
      delta_lo_[i] = statistics.delta.lo;
      inverse_hi_[i] = statistics.inverse.hi;
      inverse_lo_[i] = statistics.inverse.lo;
    }
  }

  // Parameters as one value a column, expanded into `storage` only where they do not lie that way already.
  const double* ParameterColumns(const double* parameters, std::vector<double>& storage) const {
    if (parameters == nullptr || plan_.affine_index == AffineIndex::kElement) return parameters;
    if (plan_.channels_per_keep1 == plan_.reduce1 && plan_.channel_run == 1) {
      return parameters + first_k1_ * plan_.channels_per_keep1;
    }
    storage.resize(static_cast<size_t>(columns_));
    for (int64_t c = 0; c < columns_; ++c) {
      const int64_t k1 = first_k1_ + c / plan_.reduce1;
      storage[static_cast<size_t>(c)] =
          parameters[k1 * plan_.channels_per_keep1 + c % plan_.reduce1 / plan_.channel_run];
    }
    return storage.data();
  }

  ColumnBlock Block(int64_t index) const {
    ColumnBlock block;
    const int64_t begin = index * order::kColumnBlock;
    block.x = run_.x.At(offset_ + begin * stride_);
    block.positions = std::min(order::kColumnBlock, plan_.reduce0 - begin);
    block.columns = columns_;
    block.stride = stride_;
    block.mask = run_.job.mask == nullptr ? nullptr : run_.job.mask + begin;
    block.pre = pre_ == nullptr ? nullptr : pre_ + begin * pre_stride_;
    block.pre_stride = pre_stride_;
    block.shift = shift_.data();
    block.scale = scale_.data();
    return block;
  }

  void Sum(bool split) {
    if (run_.wide() && pre_ == nullptr) ChooseScales();
    if (plan_.statistic == Statistic::kMeanVariance) {
      for (int64_t set = 0; set < sets_; ++set) {
        const int64_t c = set * plan_.reduce1;
        const double first = run_.FirstShift(offset_ + run_.first_counted * stride_ + c);
        SetShift(set, first * scale_[static_cast<size_t>(c)]);
      }
    }
    std::vector<bool> pending(static_cast<size_t>(sets_), true);
    SumPending(split, pending);
    // Again about a better shift where the first was too far from the mean; the other sets keep their result.
    bool again = false;
    for (int64_t set = 0; set < sets_; ++set) {
      const FinishedSet& result = results_[static_cast<size_t>(set)];
      pending[static_cast<size_t>(set)] = result.shift_too_far;
      if (!result.shift_too_far) continue;
      SetShift(set, run_.RoundShift(result.better_shift));
      again = true;
    }
    if (again) SumPending(split, pending);
  }

  void SetShift(int64_t set, double shift) { std::fill_n(shift_.begin() + set * plan_.reduce1, plan_.reduce1, shift); }

  // One pass over the tile; `results_` of the pending sets.
  void SumPending(bool split, const std::vector<bool>& pending) {
    const int64_t blocks = order::ColumnBlocks(plan_.reduce0);
    std::vector<PairSums> sums(static_cast<size_t>(blocks * columns_));
    const auto reduce = [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        ReduceColumnBlock(plan_.statistic, Block(b), sums.data() + b * columns_);
      }
    };
    if (split) {
      run_.pool.ParallelFor(blocks, run_.Grain(order::kColumnBlock * columns_), reduce);
    } else {
      reduce(0, blocks);
    }
    for (int64_t c = 0; c < columns_; ++c) run_.Fold(sums.data() + c, blocks, columns_);
    for (int64_t set = 0; set < sets_; ++set) {
      if (!pending[static_cast<size_t>(set)]) continue;
      const int64_t c = set * plan_.reduce1;
      run_.Fold(sums.data() + c, plan_.reduce1, 1);
      PairSums total = sums[static_cast<size_t>(c)];
      const auto i = static_cast<size_t>(set);
      if (!magnitudes_.empty() && !magnitudes_[i].finite()) {
        SetShift(set, 0);
        total = NonFiniteSums(plan_.statistic, magnitudes_[i]);
      }
      results_[i] = run_.Finish(plan_.statistic, total, run_.counted, shift_[static_cast<size_t>(c)],
                                scale_[static_cast<size_t>(c)]);
    }
  }

  void ChooseScales() {
    std::vector<Magnitude> columns(static_cast<size_t>(columns_));
    for (int64_t b = 0; b < order::ColumnBlocks(plan_.reduce0); ++b) MeasureColumns(Block(b), columns.data());
    magnitudes_.resize(static_cast<size_t>(sets_));
    for (int64_t set = 0; set < sets_; ++set) {
      Magnitude& magnitude = magnitudes_[static_cast<size_t>(set)];
      for (int64_t i = 0; i < plan_.reduce1; ++i) {
        magnitude.Include(columns[static_cast<size_t>(set * plan_.reduce1 + i)]);
      }
      std::fill_n(scale_.begin() + set * plan_.reduce1, plan_.reduce1, ScaleFor(magnitude, run_.rule));
    }
  }

  const Run& run_;
  const NormPlan& plan_;
  const int64_t first_set_, first_k1_, sets_, columns_, stride_, offset_;
  const PositionScale* const pre_;
  const int64_t pre_stride_;
  std::vector<double> scale_, shift_, delta_hi_, delta_lo_, inverse_hi_, inverse_lo_;  // one a column
  std::vector<FinishedSet> results_;                                                   // one a set
  std::vector<Magnitude> magnitudes_;                                                  // one a set, f64 only
};

// Tiles of the sets [begin, end) of keep1 for every k0.
void RunTiles(const Run& run, int64_t begin, int64_t end, const PositionScale* pre, int64_t pre_stride) {
  const NormPlan& plan = run.plan;
  const int64_t sets_per_tile = std::max<int64_t>(1, kTileColumns / std::max<int64_t>(1, plan.reduce1));
  const int64_t tiles = order::CeilDiv(end - begin, sets_per_tile);
  const int64_t tasks = plan.keep0 * tiles;
  const int64_t task_elements =
      std::max<int64_t>(1, plan.reduce0 * plan.reduce1 * std::min(end - begin, sets_per_tile));
  const bool split = tasks < 2 * run.pool.threads() && task_elements > run.grain_elements;
  const auto run_tasks = [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      const int64_t from = begin + task % tiles * sets_per_tile;
      ColumnTile tile(run, task / tiles, from, std::min(end, from + sets_per_tile), pre, pre_stride);
      tile.Reduce(split);
      tile.Apply(split);
    }
  };
  if (split) {
    run_tasks(0, tasks);
  } else {
    run.pool.ParallelFor(tasks, run.Grain(task_elements), run_tasks);
  }
}

}  // namespace

void RunColumns(const Run& run) { RunTiles(run, 0, run.plan.keep1, nullptr, 1); }

void RunPowerNorm(const Run& run) {
  const NormPlan& plan = run.plan;
  const int64_t groups = plan.power_groups;
  const int64_t group_size = plan.keep1 / groups;
  std::vector<PositionScale> pre(static_cast<size_t>(std::max(groups, plan.reduce0 * groups)));
  run.pool.ParallelFor(plan.reduce0 * groups, run.Grain(group_size), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const FinishedSet set = ReduceContiguous(run, Statistic::kMeanSquare, i * group_size, group_size);
      const DoublePair& inverse = set.statistics.inverse;
      pre[static_cast<size_t>(i)] = {set.statistics.scale, inverse.hi, inverse.lo};
    }
  });
  for (int64_t g = 0; g < groups; ++g) {
    RunTiles(run, g * group_size, (g + 1) * group_size, pre.data() + g, groups);
  }
}

}  // namespace normd::cpu
