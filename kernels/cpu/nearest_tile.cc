// The apply pass of a tile of columns to the nearest value.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/column_tile.h"
#include "kernels/cpu/folded_columns.h"
#include "kernels/cpu/nearest_channels.h"
#include "kernels/cpu/pair_tree.h"
#include "kernels/summation_order.h"

namespace normd::cpu {
namespace {

// A term of the sums for the slow road takes part in this many additions of pairs, in those of a group's columns and in
// a few folds: 1,077 at most in all (SlowGroup::SumWith).
constexpr int64_t kSummedAtOnce = 256;
constexpr int64_t kMostColumnsAgain = 256;
// The columns of f32 in two lines of memory, which SumInPairs takes at once.
constexpr int64_t kLineColumns = 32;

}  // namespace

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
  const bool is_known = plan_.given_statistics || run_.known != nullptr;
  if (!is_known || !IsCentred() || plan_.reduce1 != 1 || !by_factors_ || run_.StoresGroups()) return false;
  std::fill_n(delta_hi_.get(), groups_, 0.0);
  if (run_.known != nullptr) {
    const KnownChannels& known = *run_.known;
    const auto copy = [this](const std::vector<double>& from, auto to) {
      std::copy_n(from.begin() + first_k1_, groups_, to);
    };
    copy(known.mean, nearest_->mean.begin());
    copy(known.beta, nearest_->beta.begin());
    copy(known.kappa, nearest_->kappa.begin());
    copy(known.shift, shift_.begin());
    copy(known.inverse, inverse_hi_.get());
    return true;
  }
  const GivenNumbers numbers = {run_.job.given_mean + first_k1_, run_.job.given_variance + first_k1_, groups_};
  std::optional<GivenGroups> given = PrepareGiven(run_.rule, numbers, Precision::kExact);
  if (!given.has_value()) return false;
  for (int64_t c = 0; c < groups_; ++c) {
    const auto i = static_cast<size_t>(c);
    if (!std::isfinite(given->shift[i]) || !InverseIsInRange(given->inverse[i])) return false;
  }
  std::copy_n(given->inverse.begin(), groups_, inverse_hi_.get());
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
  all.x = run_.X(offset);
  all.y = static_cast<char*>(run_.y) + offset * SizeOf(plan_.dtype);
  quickly ? ApplyNearestQuickly(span) : ApplyNearest(all);
}

ColumnsToFold ColumnTile::ToFold(const Parameters& parameters) const {
  return {.count = columns_,
          .mean = IsCentred() ? nearest_->mean.data() : nullptr,
          .inverse = inverse_hi_.get(),
          .beta = nearest_->beta.data(),
          .kappa = nearest_->kappa.data(),
          .weight = parameters.weight,
          .bias = parameters.bias,
          .bound_factor = run_.nearest.bound_factor,
          .dtype = plan_.dtype};
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
    folded.emplace(ToFold(parameters));
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
  DecideUndecided(span, split);
}

void ColumnTile::DecideUndecided(const QuickSpan& span, bool split) const {
  std::vector<slow_road::SumsAbout> sums = pairs_;
  if (sums.empty() && SumsAgain()) sums = SumAgain(nearest_->groups.GroupsAdded(), split);
  nearest_->groups.DecideAdded(
      [&](int64_t k1, absl::FunctionRef<void(const NearestPlace&)> report) {
        const int64_t column = (k1 - first_k1_) * plan_.reduce1;
        ApplySpanToNearest(span, false, {0, plan_.reduce0}, {column, column + plan_.reduce1}, report);
      },
      split, sums.empty() ? nullptr : sums.data());
}

bool ColumnTile::SumsAgain() const {
  const bool has_squares = plan_.statistic != Statistic::kAbsSum && plan_.statistic != Statistic::kMaxAbs;
  return by_factors_ && has_squares && !plan_.given_statistics && plan_.reduce1 <= kMostColumnsAgain;
}

std::vector<slow_road::SumsAbout> ColumnTile::SumAgain(const std::vector<int64_t>& groups, bool split) const {
  if (groups.empty()) return {};
  // Lines of memory are read whole, whichever of their columns are asked for.
  const int64_t at_once = std::max<int64_t>(1, kLineColumns / plan_.reduce1);  // groups
  std::vector<GroupRange> ranges;
  for (const int64_t group : groups) {
    if (!ranges.empty() && group < ranges.back().end) continue;
    const int64_t begin = group / at_once * at_once;
    ranges.push_back({begin, std::min(groups_, begin + at_once)});
  }
  std::vector<slow_road::SumsAbout> sums(static_cast<size_t>(groups_));
  const auto sum = [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      const GroupRange& range = ranges[static_cast<size_t>(i)];
      if (!SumGroupsInPairs(range, sums.data())) SumGroupsAgain(range, sums.data());
    }
  };
  if (split) {
    run_.pool.ParallelFor(static_cast<int64_t>(ranges.size()), 1, sum);
  } else {
    sum(0, static_cast<int64_t>(ranges.size()));
  }
  return sums;
}

FloatColumns ColumnTile::FloatsAt(int64_t position, int64_t column, int64_t columns) const {
  const Elements x = run_.X(offset_ + position * stride_ + column);
  return {static_cast<const float*>(x.data), std::min(FloatColumns::kMostPositions, plan_.reduce0 - position), columns,
          stride_};
}

bool ColumnTile::SumGroupsInPairs(GroupRange groups, slow_road::SumsAbout* sums) const {
  if (!HasFloatColumns()) return false;
  const int64_t column = groups.begin * plan_.reduce1;
  const int64_t columns = groups.end * plan_.reduce1 - column;
  PairTree tree(columns);
  std::vector<PairSums> part(static_cast<size_t>(columns));
  for (int64_t begin = 0; begin < plan_.reduce0; begin += FloatColumns::kMostPositions) {
    if (!SumInPairs(FloatsAt(begin, column, columns), part.data())) return false;
    tree.Add(part.data());
  }
  std::vector<PairSums> totals = tree.Total();
  for (int64_t group = groups.begin; group < groups.end; ++group) {
    PairSums* const of_group = totals.data() + group * plan_.reduce1 - column;
    order::PairwiseFold(of_group, plan_.reduce1, 1, AddPairs);
    std::optional<slow_road::SumsAbout> about = slow_road::SumsAbout{0, of_group[0]};
    if (IsCentred()) about = AboutMean(of_group[0], static_cast<double>(run_.counted));
    if (!about.has_value()) return false;
    sums[group] = *about;
  }
  return true;
}

void ColumnTile::SumGroupsAgain(GroupRange groups, slow_road::SumsAbout* sums) const {
  const int64_t column = groups.begin * plan_.reduce1;
  const int64_t columns = groups.end * plan_.reduce1 - column;
  PairTree tree(columns);
  std::vector<PairSums> part(static_cast<size_t>(columns));
  for (int64_t begin = 0; begin < plan_.reduce0; begin += kSummedAtOnce) {
    ColumnBlock block;
    block.x = run_.X(offset_ + begin * stride_ + column);
    block.positions = std::min(kSummedAtOnce, plan_.reduce0 - begin);
    block.columns = columns;
    block.stride = stride_;
    block.mask = run_.job.mask == nullptr ? nullptr : run_.job.mask + begin;
    block.shift = nearest_->mean.data() + column;
    ReduceColumnsInPairs(block, part.data());
    tree.Add(part.data());
  }
  std::vector<PairSums> totals = tree.Total();
  for (int64_t group = groups.begin; group < groups.end; ++group) {
    PairSums* const of_group = totals.data() + group * plan_.reduce1 - column;
    for (int64_t c = 1; c < plan_.reduce1; ++c) AddPairs(of_group[0], of_group[c]);
    sums[group] = {nearest_->mean[static_cast<size_t>(group * plan_.reduce1)], of_group[0]};
  }
}

}  // namespace normd::cpu
