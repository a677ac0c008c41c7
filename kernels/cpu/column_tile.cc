// The statistics of a tile of columns, and its apply pass.
#include "kernels/cpu/column_tile.h"

#include <algorithm>

#include "kernels/cpu/factor_columns.h"
#include "kernels/summation_order.h"

namespace normd::cpu {

ColumnTile::ColumnTile(const Run& run, int64_t k0, GroupRange groups, const PositionScale* pre, int64_t pre_stride)
    : run_(run),
      plan_(run.plan),
      first_group_(k0 * plan_.keep1 + groups.begin),
      first_k1_(groups.begin),
      groups_(groups.end - groups.begin),
      columns_(groups_ * plan_.reduce1),
      stride_(plan_.keep1 * plan_.reduce1),
      offset_(run.IndexOf(k0, 0, groups.begin, 0)),
      pre_(pre),
      pre_stride_(pre_stride),
      parameters_per_position_(plan_.affine_index == AffineIndex::kElement && !run_.parameters.absent()),
      by_factors_(!run_.wide() && pre_ == nullptr),
      shift_(Columns(0)),
      delta_hi_(std::make_unique_for_overwrite<double[]>(static_cast<size_t>(columns_))),
      inverse_hi_(std::make_unique_for_overwrite<double[]>(static_cast<size_t>(columns_))) {
  if (!run_.wide() && run_.precision() == Precision::kFast) shift32_.resize(static_cast<size_t>(columns_));
  if (run_.to_nearest) {
    nearest_ =
        std::unique_ptr<Nearest>(new Nearest{{run_, k0, first_k1_, groups_}, Columns(0), Columns(0), Columns(0), {}});
  }
  if (by_factors_) return;
  scale_ = Columns(1);
  delta_lo_ = Columns(0);
  inverse_lo_ = Columns(0);
}

void ColumnTile::Reduce(bool split) {
  if (run_.given.has_value() && pre_ == nullptr && plan_.reduce1 == 1) return TakeGiven(*run_.given);
  if (nearest_ != nullptr && TakeGivenToNearest()) return;
  const bool empty = run_.counted == 0 || plan_.reduce0 == 0;
  if (!plan_.given_statistics && !empty && Sum(split)) return;
  results_.resize(static_cast<size_t>(groups_));
  for (int64_t group = 0; group < groups_; ++group) {
    FinishedStatistics& result = results_[static_cast<size_t>(group)];
    const bool summed = !plan_.given_statistics && !empty;
    if (!summed) result = plan_.given_statistics ? run_.Given(first_k1_ + group) : run_.FinishEmpty();
    if (!IsBeyond(group)) run_.StoreGroup(first_group_ + group, result);
    if (nearest_ != nullptr) {
      const GroupBound bound = summed ? BoundOf(group) : GroupBound(run_, {}, result);
      TakeBound(group, result, bound);
      if (run_.StoresGroups()) nearest_->groups.StoreGroup(first_k1_ + group, result, bound);
    }
    Spread(group, result);
  }
}

void ColumnTile::Apply(bool split) const {
  RunBeyondFast(split);
  if (run_.y == nullptr || plan_.elements == 0) return;
  if (run_.to_nearest) return ApplyToNearest(split);
  std::vector<double> weight_columns;
  std::vector<double> bias_columns;
  ApplySpan span;
  span.y_dtype = plan_.dtype;
  span.stride = stride_;
  span.statistics_per_column = true;
  span.pre_stride = pre_stride_;
  span.cast_order = plan_.cast_order;
  span.centring = centring_;
  span.prefetch = run_.prefetch ? 1 : 0;
  span.stream = run_.stream;
  span.may_be_nan = plan_.given_statistics || run_.job.mask != nullptr;
  span.parameters_per_column = true;
  Parameters parameters;
  parameters.weight = ParameterColumns(run_.parameters.weight, weight_columns);
  parameters.bias = ParameterColumns(run_.parameters.bias, bias_columns);
  FactorColumns factors;
  if (by_factors_) factors.Fill(StatisticsAt(0), parameters.weight, parameters.bias, columns_);
  const auto apply = [&](int64_t begin, int64_t end) {
    ApplySpan part = span;
    part.positions = end - begin;
    part.pre = pre_ == nullptr ? nullptr : pre_ + begin * pre_stride_;
    // Groups beyond FAST cut the tile.
    for (int64_t group = NextBeyond(0, false); group < groups_;) {
      const int64_t stop = NextBeyond(group, true);
      const int64_t column = group * plan_.reduce1;
      const int64_t offset = offset_ + begin * stride_ + column;
      const ColumnStatistics here = StatisticsAt(column);
      part.column_statistics = &here;
      part.factors = factors.At(column);
      part.columns = (stop - group) * plan_.reduce1;
      part.x = run_.X(offset);
      part.y = static_cast<char*>(run_.y) + offset * SizeOf(plan_.dtype);
      part.parameters = parameters.At(column);
      cpu::Apply(part);
      group = NextBeyond(stop, false);
    }
    if (run_.stream) FlushStreams();
  };
  if (split) {
    run_.pool.ParallelFor(plan_.reduce0, run_.Grain(columns_), apply);
  } else {
    apply(0, plan_.reduce0);
  }
}

void ColumnTile::RunBeyondFast(bool split) const {
  if (run_.precision() != Precision::kFast) return;
  const int64_t k0 = first_group_ / plan_.keep1;
  for (int64_t group = NextBeyond(0, true); group < groups_;) {
    const int64_t stop = NextBeyond(group, false);
    const NearestRun nearest(run_, k0, {first_k1_ + group, first_k1_ + stop});
    ColumnTile tile(nearest.run(), nearest.k0(), nearest.groups(), nullptr, 1);
    tile.Reduce(split);
    tile.Apply(split);
    nearest.WriteY();
    group = NextBeyond(stop, true);
  }
}

void ColumnTile::TakeGiven(const GivenGroups& given) {
  const auto take = [this](const std::vector<double>& from, double* to) {
    std::copy_n(from.begin() + first_k1_, groups_, to);
  };
  take(given.shift, shift_.data());
  take(given.delta, delta_hi_.get());
  take(given.inverse, inverse_hi_.get());
  if (given.has_delta) centring_ = Centring::kTwice;
  results_ = {given.At(first_k1_)};
}

void ColumnTile::Spread(int64_t group, const FinishedStatistics& result) {
  const GroupStatistics& statistics = result.statistics;
  if (statistics.delta.hi != 0) centring_ = Centring::kTwice;
  const int64_t first = group * plan_.reduce1;
  const auto fill = [&](double* columns, double value) { std::fill_n(columns + first, plan_.reduce1, value); };
  fill(shift_.data(), statistics.shift);
  fill(delta_hi_.get(), statistics.delta.hi);
  fill(inverse_hi_.get(), statistics.inverse.hi);
  if (by_factors_) return;
  fill(scale_.data(), statistics.scale);
  fill(delta_lo_.data(), statistics.delta.lo);
  fill(inverse_lo_.data(), statistics.inverse.lo);
}

ColumnStatistics ColumnTile::StatisticsAt(int64_t column) const {
  ColumnStatistics statistics;
  statistics.shift = shift_.data() + column;
  statistics.delta_hi = delta_hi_.get() + column;
  statistics.inverse_hi = inverse_hi_.get() + column;
  if (by_factors_) return statistics;
  statistics.scale = scale_.data() + column;
  statistics.delta_lo = delta_lo_.data() + column;
  statistics.inverse_lo = inverse_lo_.data() + column;
  return statistics;
}

const double* ColumnTile::ParameterColumns(const double* parameters, std::vector<double>& storage) const {
  if (parameters == nullptr || plan_.affine_index == AffineIndex::kElement) return parameters;
  if (plan_.channels_per_keep1 == plan_.reduce1 && plan_.channel_run == 1) {
    return parameters + first_k1_ * plan_.channels_per_keep1;
  }
  storage.resize(static_cast<size_t>(columns_));
  for (int64_t c = 0; c < columns_; ++c) {
    const int64_t k1 = first_k1_ + c / plan_.reduce1;
    storage[static_cast<size_t>(c)] = parameters[k1 * plan_.channels_per_keep1 + c % plan_.reduce1 / plan_.channel_run];
  }
  return storage.data();
}

ColumnBlock ColumnTile::Block(int64_t index) const {
  ColumnBlock block;
  const int64_t begin = index * order::kColumnBlock;
  block.x = run_.X(offset_ + begin * stride_);
  block.positions = std::min(order::kColumnBlock, plan_.reduce0 - begin);
  block.columns = columns_;
  block.stride = stride_;
  block.mask = run_.job.mask == nullptr ? nullptr : run_.job.mask + begin;
  block.pre = pre_ == nullptr ? nullptr : pre_ + begin * pre_stride_;
  block.pre_stride = pre_stride_;
  block.shift = shift_.data();
  block.shift32 = shift32_.data();
  block.shallow = nearest_ != nullptr;
  block.scale = scale_.empty() ? nullptr : scale_.data();
  return block;
}

}  // namespace normd::cpu
