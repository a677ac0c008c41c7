// The apply pass of a tile of columns to the nearest value.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/column_tile.h"
#include "kernels/cpu/folded_columns.h"

namespace normd::cpu {

void ColumnTile::TakeBound(int64_t group, const FinishedStatistics& result, const GroupBound& bound) {
  nearest_->is_finite.resize(static_cast<size_t>(groups_));
  nearest_->is_finite[static_cast<size_t>(group)] = bound.is_finite;
  const auto fill = [&](std::vector<double>& columns, double value) {
    std::fill_n(columns.begin() + group * plan_.reduce1, plan_.reduce1, value);
  };
  fill(nearest_->mean, result.mean);
  fill(nearest_->beta, bound.bound.beta);
  fill(nearest_->kappa, bound.bound.kappa);
}

void ColumnTile::TakeBounds(int64_t begin, int64_t count, const ChannelStatistics& channels) {
  std::copy_n(channels.mean, count, nearest_->mean.begin() + begin);
  std::copy_n(channels.beta, count, nearest_->beta.begin() + begin);
  std::copy_n(channels.kappa, count, nearest_->kappa.begin() + begin);
  for (int64_t c = 0; run_.StoresGroups() && c < count; ++c) {
    FinishedStatistics result;
    result.mean = channels.mean[c];
    result.inverse_std = channels.inverse[c];
    nearest_->groups.StoreGroup(first_k1_ + begin + c, result, BoundOf(begin + c));
  }
}

bool ColumnTile::TakeGivenToNearest() {
  if (!plan_.given_statistics || !IsCentred() || plan_.reduce1 != 1 || !by_factors_ || run_.StoresGroups())
    return false;
  const GivenNumbers numbers = {run_.job.given_mean + first_k1_, run_.job.given_variance + first_k1_, groups_};
  std::optional<GivenGroups> given = PrepareGiven(run_.rule, numbers, Precision::kExact, false);
  if (!given.has_value()) return false;
  for (int64_t c = 0; c < groups_; ++c) {
    const auto i = static_cast<size_t>(c);
    if (!std::isfinite(given->shift[i]) || !InverseIsInRange(given->inverse[i])) return false;
  }
  std::copy_n(given->inverse.begin(), groups_, inverse_hi_.get());
  std::fill_n(delta_hi_.get(), groups_, 0.0);
  std::fill(nearest_->kappa.begin(), nearest_->kappa.end(), kKappaOfGiven);
  std::copy_n(numbers.mean, groups_, nearest_->mean.begin());
  shift_ = std::move(given->shift);
  return true;
}

GroupBound ColumnTile::BoundOf(int64_t group) const {
  const auto column = static_cast<size_t>(group * plan_.reduce1);
  GroupBound bound;
  bound.bound = {nearest_->beta[column], nearest_->kappa[column]};
  bound.is_finite = nearest_->is_finite.empty() || nearest_->is_finite[static_cast<size_t>(group)];
  return bound;
}

bool ColumnTile::LooksQuickly() const {
  const std::vector<bool>& finite = nearest_->is_finite;
  return by_factors_ && !parameters_per_position_ && plan_.cast_order == CastOrder::kAffineThenCast &&
         std::isfinite(run_.nearest.bound_factor) && std::find(finite.begin(), finite.end(), false) == finite.end();
}

NearestSpan ColumnTile::SpanToNearest(const Parameters& parameters) const {
  NearestSpan span;
  span.y_dtype = plan_.dtype;
  span.stride = stride_;
  span.statistics_along = Along::kColumns;
  span.centring = IsCentred() ? centring_ : Centring::kNone;
  span.scale = scale_.data();
  span.shift = shift_.data();
  span.delta = delta_hi_.get();
  span.delta_lo = delta_lo_.data();
  span.inverse = inverse_hi_.get();
  span.inverse_lo = inverse_lo_.data();
  if (std::isfinite(run_.nearest.bound_factor)) span.rounding *= run_.nearest.bound_factor;
  span.parameters_along = parameters_per_position_ ? Along::kPositions : Along::kColumns;
  span.weight = parameters.weight;
  span.bias = parameters.bias;
  span.cast_order = plan_.cast_order;
  return span;
}

ElementBound ColumnTile::BoundOfColumn(int64_t column, const Parameters& parameters) const {
  double weight = run_.largest_weight;
  double bias = run_.largest_bias;
  if (!parameters_per_position_) {
    weight = parameters.weight == nullptr ? 1 : parameters.weight[column];
    bias = parameters.bias == nullptr ? 0 : parameters.bias[column];
  }
  return BoundOf(column / plan_.reduce1).Of(run_, weight, bias);
}

void ColumnTile::ApplySpanToNearest(QuickSpan span, bool quickly, GroupRange positions, GroupRange columns,
                                    Report report) const {
  NearestSpan& all = span.careful;
  auto place = [&](const Undecided* undecided, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t column = columns.begin + undecided[i].column;
      const int64_t group = column / plan_.reduce1;
      if (!BoundOf(group).is_finite) continue;
      report({positions.begin + undecided[i].position, first_k1_ + group, column % plan_.reduce1, undecided[i].x});
    }
  };
  all.ReportTo(place);
  const auto advance = [](const double*& numbers, int64_t by) {
    numbers = numbers == nullptr ? nullptr : numbers + by;
  };
  for (const double** numbers : {&all.shift, &all.delta, &all.inverse, &all.fixed, &all.relative}) {
    advance(*numbers, columns.begin);
  }
  if (!by_factors_) {
    for (const double** numbers : {&all.scale, &all.delta_lo, &all.inverse_lo}) advance(*numbers, columns.begin);
  }
  for (const double** numbers : {&all.weight, &all.bias}) {
    advance(*numbers, parameters_per_position_ ? positions.begin : columns.begin);
  }
  const int64_t offset = offset_ + positions.begin * stride_ + columns.begin;
  all.positions = positions.end - positions.begin;
  all.columns = columns.end - columns.begin;
  all.x = run_.x.At(offset);
  all.y = static_cast<char*>(run_.y) + offset * SizeOf(plan_.dtype);
  quickly ? ApplyNearestQuickly(span) : ApplyNearest(all);
}

void ColumnTile::ApplyToNearest(bool split) const {
  std::vector<double> weight_columns, bias_columns;
  const Parameters parameters = {.weight = ParameterColumns(run_.parameters.weight, weight_columns),
                                 .bias = ParameterColumns(run_.parameters.bias, bias_columns)};
  QuickSpan span = {.careful = SpanToNearest(parameters), .stream = run_.stream, .prefetch = run_.prefetch};
  const bool quickly = LooksQuickly();
  std::optional<FoldedColumns> folded;
  std::vector<double> fixed, relative;
  if (quickly) {
    folded.emplace(ColumnsToFold{.count = columns_,
                                 .mean = IsCentred() ? nearest_->mean.data() : nullptr,
                                 .inverse = inverse_hi_.get(),
                                 .beta = nearest_->beta.data(),
                                 .kappa = nearest_->kappa.data(),
                                 .weight = parameters.weight,
                                 .bias = parameters.bias,
                                 .bound_factor = run_.nearest.bound_factor,
                                 .dtype = plan_.dtype});
    folded->AddTo(0, &span);
  } else {
    for (int64_t column = 0; column < columns_; ++column) {
      const ElementBound bound = BoundOfColumn(column, parameters);
      fixed.push_back(bound.fixed);
      relative.push_back(bound.relative);
    }
    span.careful.fixed = fixed.data();
    span.careful.relative = relative.data();
  }
  const auto apply = [&](int64_t begin, int64_t end) {
    ApplySpanToNearest(span, quickly, {begin, end}, {0, columns_},
                       [&](const NearestPlace& place) { nearest_->groups.Add(place); });
    if (run_.stream) FlushStreams();
  };
  if (split) {
    run_.pool.ParallelFor(plan_.reduce0, run_.Grain(columns_), apply);
  } else {
    apply(0, plan_.reduce0);
  }
  nearest_->groups.DecideAdded(
      [&](int64_t k1, absl::FunctionRef<void(const NearestPlace&)> report) {
        const int64_t column = (k1 - first_k1_) * plan_.reduce1;
        ApplySpanToNearest(span, false, {0, plan_.reduce0}, {column, column + plan_.reduce1}, report);
      },
      split);
}

}  // namespace normd::cpu
