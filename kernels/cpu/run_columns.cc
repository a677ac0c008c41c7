// The walker of Pattern::kColumns (the innermost extent is kept): tiles of adjacent columns, positions in blocks.
#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <vector>

#include "kernels/cpu/factor_columns.h"
#include "kernels/cpu/nearest_group.h"
#include "kernels/cpu/run.h"
#include "kernels/summation_order.h"

namespace normd::cpu {
namespace {

// The number of columns of one task: the sums and statistics of a tile stay in L2 while the rows stream through it.
constexpr int64_t kTileColumns = 1024;

// The blocks are summed in spans, each with sums of its own. This many spans for each thread share the work evenly.
constexpr int64_t kSpansPerThread = 4;

// Rows of sums that are folded as they come, see order::FoldsAfter, so that at most as many are kept as the count has
// binary digits.
class FoldedRows {
 public:
  // For at most `rows` rows of `width` sums each.
  FoldedRows(int64_t rows, int64_t width)
      : width_(width),
        kept_(std::make_unique_for_overwrite<double[]>(
            static_cast<size_t>((std::bit_width(static_cast<uint64_t>(rows)) + 1) * width))) {}

  // The place for the sums of the next row. Call Push() when they are written.
  double* Next() { return kept_.get() + depth_ * width_; }
  void Push() {
    ++depth_;
    for (int folds = order::FoldsAfter(count_++); folds > 0; --folds) Merge();
  }
  // The fold of all rows since the last call. REQUIRES: there is one.
  const double* Total() {
    while (depth_ > 1) Merge();
    depth_ = count_ = 0;
    return kept_.get();
  }

 private:
  void Merge() {
    --depth_;
    AddSums(kept_.get() + depth_ * width_, width_, kept_.get() + (depth_ - 1) * width_);
  }

  const int64_t width_;
  const std::unique_ptr<double[]> kept_;
  int64_t depth_ = 0, count_ = 0;
};

// A tile: the statistics groups [begin, end) of keep1 for one k0, which have (end - begin) * reduce1 adjacent columns.
// Used by one task: Reduce, then Apply; `split` shares the work of either among the threads of the pool.
class ColumnTile {
 public:
  ColumnTile(const Run& run, int64_t k0, int64_t begin, int64_t end, const PositionScale* pre, int64_t pre_stride)
      : run_(run),
        plan_(run.plan),
        first_group_(k0 * plan_.keep1 + begin),
        first_k1_(begin),
        groups_(end - begin),
        columns_(groups_ * plan_.reduce1),
        stride_(plan_.keep1 * plan_.reduce1),
        offset_(k0 * plan_.reduce0 * stride_ + begin * plan_.reduce1),
        pre_(pre),
        pre_stride_(pre_stride),
        parameters_per_position_(plan_.affine_index == AffineIndex::kElement && !run_.parameters.absent()),
        by_factors_((run_.nearest.on && !run_.wide()) ||
                    (!run_.wide() && pre_ == nullptr && !parameters_per_position_ &&
                     plan_.cast_order == CastOrder::kAffineThenCast)),
        shift_(Columns(0)),
        delta_hi_(std::make_unique_for_overwrite<double[]>(static_cast<size_t>(columns_))),
        inverse_hi_(std::make_unique_for_overwrite<double[]>(static_cast<size_t>(columns_))) {
    if (!run_.wide() && run_.precision() == Precision::kFast) shift32_.resize(static_cast<size_t>(columns_));
    if (run_.nearest.on) {
      summed_about_.resize(static_cast<size_t>(groups_));
      sums_to_zero_.resize(static_cast<size_t>(groups_));
      nearest_ = std::make_unique<NearestGroups>(run_, k0, begin, groups_);
    }
    if (by_factors_) return;
    scale_ = Columns(1);
    delta_lo_ = Columns(0);
    inverse_lo_ = Columns(0);
  }

  void Reduce(bool split) {
    if (run_.given.has_value() && pre_ == nullptr && plan_.reduce1 == 1) return TakeGiven(*run_.given);
    const bool empty = run_.counted == 0 || plan_.reduce0 == 0;
    if (!plan_.given_statistics && !empty && Sum(split)) return;
    results_.resize(static_cast<size_t>(groups_));
    for (int64_t group = 0; group < groups_; ++group) {
      FinishedStatistics& result = results_[static_cast<size_t>(group)];
      if (plan_.given_statistics) {
        result = run_.Given(first_k1_ + group);
      } else if (empty) {
        result = run_.FinishEmpty();
      }
      run_.StoreGroup(first_group_ + group, result);
      if (run_.nearest.on && run_.StoresGroups() && GroupBound(run_, {}, result).is_finite) {
        nearest_->StoreGroup(first_k1_ + group);
      }
      if (run_.is_16bit() && !run_.nearest.on) Calculate16BitInF32(&result);
      Spread(group, result);
    }
  }

  void Apply(bool split) const {
    if (run_.y == nullptr || plan_.elements == 0) return;
    if (run_.nearest.on) return ApplyToNearest(split);
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
    span.parameters_per_position = parameters_per_position_;
    span.parameters_per_column = !parameters_per_position_;
    Parameters parameters;
    parameters.weight = ParameterColumns(run_.parameters.weight, weight_columns);
    parameters.bias = ParameterColumns(run_.parameters.bias, bias_columns);
    FactorColumns<double> factors;
    FactorColumns<float> factors32;
    int64_t in_f32 = 0;
    for (int64_t group = 0; group < groups_; ++group) in_f32 += InF32(group) ? 1 : 0;
    if (by_factors_ && in_f32 > 0) factors32.Fill(StatisticsAt(0), parameters.weight, parameters.bias, columns_);
    if (by_factors_ && in_f32 < groups_) factors.Fill(StatisticsAt(0), parameters.weight, parameters.bias, columns_);
    const auto apply = [&](int64_t begin, int64_t end) {
      ApplySpan part = span;
      part.positions = end - begin;
      part.pre = pre_ == nullptr ? nullptr : pre_ + begin * pre_stride_;
      // A change between groups that are calculated in different ways cuts the tile.
      for (int64_t group = 0; group < groups_;) {
        int64_t stop = group + 1;
        while (stop < groups_ && AreAlike(stop, group)) ++stop;
        const int64_t column = group * plan_.reduce1;
        const int64_t offset = offset_ + begin * stride_ + column;
        const ColumnStatistics here = StatisticsAt(column);
        part.column_statistics = &here;
        part.factors = factors.At(column);
        part.factors32 = factors32.At(column);
        part.in_f32 = InF32(group);
        part.may_be_nan = MayBeNan(group);
        part.columns = (stop - group) * plan_.reduce1;
        part.x = run_.x.At(offset);
        part.y = static_cast<char*>(run_.y) + offset * SizeOf(plan_.dtype);
        part.parameters = parameters.At(span.parameters_per_position ? begin : column);
        cpu::Apply(part);
        group = stop;
      }
      if (run_.stream) FlushStreams();
    };
    if (split) {
      run_.pool.ParallelFor(plan_.reduce0, run_.Grain(columns_), apply);
    } else {
      apply(0, plan_.reduce0);
    }
  }

 private:
  // The bounds of the columns, from `bounds` of the groups, and whether w and b are one for each column.
  struct ColumnBounds {
    std::vector<double> fixed, relative;
  };
  ColumnBounds BoundsOf(const std::vector<GroupBound>& bounds, const Parameters& parameters) const {
    const HostParameters* const host = run_.job.parameters == nullptr ? nullptr : &run_.job.parameters->host();
    const bool casts_first = plan_.cast_order == CastOrder::kCastThenAffine;
    const bool needs_rest = casts_first || plan_.dtype == DType::kF64;
    const bool rounds_weights = needs_rest && host != nullptr && !host->weight_rest.empty();
    ColumnBounds columns = {Columns(0), Columns(0)};
    for (int64_t column = 0; column < columns_; ++column) {
      double weight = casts_first ? 1 : run_.largest_weight;
      double bias = casts_first ? 0 : run_.largest_bias;
      if (!parameters_per_position_ && !casts_first) {
        weight = parameters.weight == nullptr ? 1 : parameters.weight[column];
        bias = parameters.bias == nullptr ? 0 : parameters.bias[column];
      }
      const ElementBound bound = bounds[static_cast<size_t>(column / plan_.reduce1)].Of(run_, weight, bias);
      double fixed = rounds_weights ? ElementBound().fixed : bound.fixed;
      // Where w is 0 and no b is added, y has the sign of n, which an element near the mean may not show.
      const bool keeps_sign = parameters.bias == nullptr || (bias == 0 && std::signbit(bias));
      if (weight == 0 && keeps_sign && IsCentred() && fixed == 0) fixed = 0x1p-1000;
      columns.fixed[static_cast<size_t>(column)] = fixed;
      columns.relative[static_cast<size_t>(column)] = bound.relative;
    }
    return columns;
  }

  // Apply() with each element rounded to the nearest value.
  void ApplyToNearest(bool split) const {
    std::vector<double> weight_columns;
    std::vector<double> bias_columns;
    const Parameters parameters = {.weight = ParameterColumns(run_.parameters.weight, weight_columns),
                                   .bias = ParameterColumns(run_.parameters.bias, bias_columns)};
    std::vector<GroupBound> bounds;
    for (int64_t group = 0; group < groups_; ++group) {
      const SumErrors sums = {AdditionsInColumns(plan_.reduce0, plan_.reduce1),
                              summed_about_[static_cast<size_t>(group)], sums_to_zero_[static_cast<size_t>(group)]};
      bounds.emplace_back(run_, sums, Result(group));
    }
    const ColumnBounds column_bounds = BoundsOf(bounds, parameters);
    NearestSpan span;
    span.y_dtype = plan_.dtype;
    span.scale = scale_.data();
    span.delta_lo = delta_lo_.data();
    span.inverse_lo = inverse_lo_.data();
    span.columns = columns_;
    span.stride = stride_;
    span.statistics_along = Along::kColumns;
    span.centring = IsCentred() ? centring_ : Centring::kNone;
    span.shift = shift_.data();
    span.delta = delta_hi_.get();
    span.inverse = inverse_hi_.get();
    span.fixed = column_bounds.fixed.data();
    span.relative = column_bounds.relative.data();
    span.parameters_along = parameters_per_position_ ? Along::kPositions : Along::kColumns;
    span.cast_order = plan_.cast_order;
    const auto apply = [&](int64_t begin, int64_t end) {
      auto report = [&](const Undecided* undecided, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
          const int64_t group = undecided[i].column / plan_.reduce1;
          if (!bounds[static_cast<size_t>(group)].is_finite) continue;
          nearest_->Decide(begin + undecided[i].position, first_k1_ + group, undecided[i].column % plan_.reduce1,
                           undecided[i].x);
        }
      };
      NearestSpan part = span;
      part.ReportTo(report);
      const int64_t offset = offset_ + begin * stride_;
      part.positions = end - begin;
      part.x = run_.x.At(offset);
      part.y = static_cast<char*>(run_.y) + offset * SizeOf(plan_.dtype);
      part.weight =
          parameters.weight == nullptr || !parameters_per_position_ ? parameters.weight : parameters.weight + begin;
      part.bias = parameters.bias == nullptr || !parameters_per_position_ ? parameters.bias : parameters.bias + begin;
      cpu::ApplyNearest(part);
    };
    if (split) {
      run_.pool.ParallelFor(plan_.reduce0, run_.Grain(columns_), apply);
    } else {
      apply(0, plan_.reduce0);
    }
  }

  std::vector<double> Columns(double value) const { return std::vector<double>(static_cast<size_t>(columns_), value); }

  // The statistics from `column` on; for columns that are applied by factors, the members that FactorColumns reads.
  ColumnStatistics StatisticsAt(int64_t column) const {
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

  bool InF32(int64_t group) const { return Result(group).elements_in_f32 && run_.parameters.fit_f32; }
  bool MayBeNan(int64_t group) const {
    return !Result(group).finite || !run_.parameters.fit_f32 || run_.job.mask != nullptr;
  }
  // True if two groups can be applied together. If they differed, the bits of one would depend on the other.
  bool AreAlike(int64_t a, int64_t b) const { return InF32(a) == InF32(b) && MayBeNan(a) == MayBeNan(b); }

  const FinishedStatistics& Result(int64_t group) const {
    return results_[results_.size() == 1 ? 0 : static_cast<size_t>(group)];
  }

  // Copies prepared statistics of groups of one column each.
  void TakeGiven(const GivenGroups& given) {
    const auto take = [this](const std::vector<double>& from, double* to) {
      std::copy_n(from.begin() + first_k1_, groups_, to);
    };
    take(given.shift, shift_.data());
    take(given.delta, delta_hi_.get());
    take(given.inverse, inverse_hi_.get());
    if (given.has_delta) centring_ = Centring::kTwice;
    results_ = {given.At(first_k1_)};
  }

  // Copies the statistics of a group to each of its columns.
  void Spread(int64_t group, const FinishedStatistics& result) {
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

  // The parameters as one value for each column. They are expanded into `storage` only if memory does not hold them in
  // this form already.
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
    block.shift32 = shift32_.data();
    block.scale = scale_.empty() ? nullptr : scale_.data();
    return block;
  }

  bool IsCentred() const { return plan_.statistic == Statistic::kMeanVariance; }

  // Sums the tile and finishes its groups. Returns true if FinishTogether() finished all of them; otherwise results_
  // has the result of each group, which is yet to be stored and spread.
  bool Sum(bool split) {
    std::vector<bool> pending(static_cast<size_t>(groups_), true);
    if (run_.wide() || pre_ != nullptr) {
      SumPairs(split, pending);
      return false;
    }
    if (SumNarrow(split, run_.precision(), pending)) return true;
    if (run_.precision() == Precision::kExact) return false;
    bool again = false;
    for (size_t group = 0; group < pending.size(); ++group) {
      pending[group] = results_[group].shift_too_far || results_[group].out_of_fast_range;
      again = again || pending[group];
    }
    if (again) SumNarrow(split, Precision::kExact, pending);
    return false;
  }

  void SumPairs(bool split, std::vector<bool> pending) {
    results_.resize(static_cast<size_t>(groups_));
    if (pre_ == nullptr) ChooseScales();
    if (IsCentred()) {
      for (int64_t group = 0; group < groups_; ++group) {
        const int64_t c = group * plan_.reduce1;
        SetShift(group, FirstElement(c) * scale_[static_cast<size_t>(c)]);
      }
    }
    if (SumsPowers(plan_.statistic)) {
      for (int64_t group = 0; group < groups_; ++group) {
        const double scale = scale_[static_cast<size_t>(group * plan_.reduce1)];
        SetShift(group, magnitudes_[static_cast<size_t>(group)].largest() * scale);
      }
    }
    SumPendingPairs(split, pending);
    if (TakeBetterShifts(pending)) SumPendingPairs(split, pending);
  }

  // Sums the pending groups in f64 (kExact) or f32 (kFast), about a first shift and, where needed, about a better one.
  // Returns the same as Sum.
  bool SumNarrow(bool split, Precision precision, std::vector<bool> pending) {
    if (IsCentred()) ChooseShifts(precision, pending);
    std::unique_ptr<double[]> sums = SumTile(split, precision);
    if (results_.empty() && FinishTogether(precision, sums.get())) return true;
    FinishPending(precision, pending, sums.get());
    if (TakeBetterShifts(pending)) {
      sums = SumTile(split, precision);
      FinishPending(precision, pending, sums.get());
    }
    return false;
  }

  // Keeps those groups pending whose first shift was too far from the mean, and gives them the better shift; the other
  // groups keep their result. Returns true if any group is pending.
  bool TakeBetterShifts(std::vector<bool>& pending) {
    bool any = false;
    for (int64_t group = 0; group < groups_; ++group) {
      const FinishedStatistics& result = results_[static_cast<size_t>(group)];
      const bool again = pending[static_cast<size_t>(group)] && result.shift_too_far;
      pending[static_cast<size_t>(group)] = again;
      if (!again) continue;
      SetShift(group, result.better_shift);
      any = true;
    }
    return any;
  }

  // The first counted element of a column; 0 if it is not finite.
  double FirstElement(int64_t column) const {
    return FirstShift(Precision::kExact, run_.x.At(offset_ + run_.first_counted * stride_ + column), 1, true);
  }

  // Chooses the first shift of the pending groups: the first element under EXACT, and under FAST, which has no digits
  // to spare, the mean of the first positions.
  void ChooseShifts(Precision precision, const std::vector<bool>& pending) {
    static_assert(order::kFastColumnSample <= order::kColumnBlock);
    ColumnBlock block = Block(0);
    block.positions = std::min(order::kFastColumnSample, plan_.reduce0);
    block.shift = nullptr;
    const int64_t counted = block.mask == nullptr
                                ? block.positions
                                : block.positions - std::count(block.mask, block.mask + block.positions, 0);
    const bool sample = precision == Precision::kFast && counted > 0;
    std::unique_ptr<double[]> first;
    if (sample) {
      const int64_t room = RoomOf(columns_);
      first = std::make_unique_for_overwrite<double[]>(static_cast<size_t>(2 * room));
      ReduceNarrowColumnBlock(plan_.statistic, Precision::kExact, block, first.get(), first.get() + room);
    }
    for (int64_t group = 0; group < groups_; ++group) {
      if (!pending[static_cast<size_t>(group)]) continue;
      double shift = FirstElement(group * plan_.reduce1);
      if (sample) {
        double sum = 0;
        for (int64_t c = 0; c < plan_.reduce1; ++c) sum += first[group * plan_.reduce1 + c];
        const auto mean = static_cast<float>(sum / static_cast<double>(counted * plan_.reduce1));
        shift = std::isfinite(mean) ? mean : 0;
      }
      SetShift(group, shift);
    }
  }

  void SetShift(int64_t group, double shift) {
    std::fill_n(shift_.begin() + group * plan_.reduce1, plan_.reduce1, shift);
    if (shift32_.empty()) return;
    std::fill_n(shift32_.begin() + group * plan_.reduce1, plan_.reduce1, static_cast<float>(shift));
  }

  // The sums of each column: RoomOf(columns_) second sums, then, if a mean is subtracted, as many first sums.
  std::unique_ptr<double[]> SumTile(bool split, Precision precision) const {
    const int64_t blocks = order::ColumnBlocks(plan_.reduce0);
    const int64_t room = RoomOf(columns_);
    const int64_t width = IsCentred() ? 2 * room : room;
    // A span is a power of two of blocks, so that the tree over its blocks is a part of the tree over all.
    const int64_t enough = split ? kSpansPerThread * run_.pool.threads() : 1;
    int64_t span_blocks = 1;
    while (order::CeilDiv(blocks, span_blocks) > enough) span_blocks *= 2;
    const int64_t spans = order::CeilDiv(blocks, span_blocks);
    auto sums = std::make_unique_for_overwrite<double[]>(static_cast<size_t>(spans * width));
    const auto reduce = [&](int64_t begin, int64_t end) {
      FoldedRows rows(span_blocks, width);
      for (int64_t g = begin; g < end; ++g) {
        for (int64_t b = g * span_blocks; b < std::min(blocks, (g + 1) * span_blocks); ++b) {
          double* const second = rows.Next();
          ReduceNarrowColumnBlock(plan_.statistic, precision, Block(b), IsCentred() ? second + room : nullptr, second);
          rows.Push();
        }
        std::copy_n(rows.Total(), width, sums.get() + g * width);
      }
    };
    if (split) {
      run_.pool.ParallelFor(spans, run_.Grain(span_blocks * order::kColumnBlock * columns_), reduce);
    } else {
      reduce(0, spans);
    }
    std::vector<double*> of_spans(static_cast<size_t>(spans));
    for (int64_t g = 0; g < spans; ++g) of_spans[static_cast<size_t>(g)] = sums.get() + g * width;
    order::PairwiseFold(of_spans.data(), spans, 1, [width](double* a, const double* b) { AddSums(b, width, a); });
    return sums;
  }

  // Finishes groups of one column each, a vector of groups at a time, from the sums of SumTile(). Returns false if some
  // group is not settled (see ChannelStatistics): Reduce then finishes, stores and spreads all of them again.
  bool FinishTogether(Precision precision, const double* sums) {
    if (!IsCentred() || plan_.reduce1 != 1 || !by_factors_ || run_.nearest.on) return false;
    std::vector<double> shift(shift_.size());
    const double* const first = sums + RoomOf(columns_);
    for (int64_t begin = 0; begin < groups_; begin += ChannelBlock::kMaxChannels) {
      const int64_t count = std::min(ChannelBlock::kMaxChannels, groups_ - begin);
      ChannelStatistics some;
      FinishChannels({.dtype = plan_.dtype,
                      .channels = count,
                      .count = run_.counted,
                      .shift = shift_.data() + begin,
                      .first = first + begin,
                      .second = sums + begin,
                      .precision = precision,
                      .rule = run_.rule},
                     &some);
      if (!std::all_of(some.settled, some.settled + count, [](bool settled) { return settled; })) return false;
      std::copy_n(some.shift, count, shift.begin() + begin);
      std::copy_n(some.delta, count, delta_hi_.get() + begin);
      std::copy_n(some.inverse, count, inverse_hi_.get() + begin);
      run_.StoreChannels(first_group_ + begin, some, 0, count);
    }
    shift_ = std::move(shift);
    const double* const delta = delta_hi_.get();
    if (std::any_of(delta, delta + groups_, [](double d) { return d != 0; })) centring_ = Centring::kTwice;
    results_ = {
        FinishedStatistics{.elements_in_f32 = run_.is_16bit() || precision == Precision::kFast, .finite = true}};
    return true;
  }

  // Writes results_ of the pending groups from their sums.
  void FinishPending(Precision precision, const std::vector<bool>& pending, double* sums) {
    results_.resize(static_cast<size_t>(groups_));
    const int64_t room = RoomOf(columns_);
    // The low parts of narrow sums are 0.
    const auto fold = [this](double* columns) {
      order::PairwiseFold(columns, plan_.reduce1, 1, [](double& a, double b) { a += b; });
      return DoublePair{columns[0], 0};
    };
    for (int64_t group = 0; group < groups_; ++group) {
      if (!pending[static_cast<size_t>(group)]) continue;
      double* const second = sums + group * plan_.reduce1;
      const PairSums total = {IsCentred() ? fold(second + room) : DoublePair{}, fold(second)};
      const double shift = shift_[static_cast<size_t>(group * plan_.reduce1)];
      if (run_.nearest.on) {
        summed_about_[static_cast<size_t>(group)] = shift;
        sums_to_zero_[static_cast<size_t>(group)] = total.second.hi == 0;
      }
      results_[static_cast<size_t>(group)] = run_.Finish(plan_.statistic, total, run_.counted, shift, 1, precision);
    }
  }

  // The sums of kPowerSum's terms. `block.shift` is the largest |x| of each column's group, scaled. Methods with this
  // statistic take no mask.
  void SumPowers(const ColumnBlock& block, PairSums* sums) const {
    std::vector<double> high(static_cast<size_t>(block.positions * block.columns));
    std::vector<double> low(high.size());
    for (int64_t i = 0; i < block.positions * block.columns; ++i) {
      const int64_t column = i % block.columns;
      PowerTerms(block.x.At(i / block.columns * block.stride + column), 1,
                 {block.scale[column], block.shift[column], run_.rule.p, run_.nearest.on}, high.data() + i,
                 low.data() + i);
    }
    ReduceColumnBlock(Statistic::kAbsSum,
                      {.x = {DType::kF64, high.data(), low.data()},
                       .positions = block.positions,
                       .columns = block.columns,
                       .stride = block.columns},
                      sums);
  }

  // Sums the tile once in pairs, for f64 elements and PowerNorm, and writes results_ of the pending groups.
  void SumPendingPairs(bool split, const std::vector<bool>& pending) {
    const int64_t blocks = order::ColumnBlocks(plan_.reduce0);
    std::vector<PairSums> sums(static_cast<size_t>(blocks * columns_));
    const auto reduce = [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        if (plan_.statistic == Statistic::kPowerSum) {
          SumPowers(Block(b), sums.data() + b * columns_);
        } else if (plan_.statistic != Statistic::kMaxAbs) {
          ReduceColumnBlock(plan_.statistic, Block(b), sums.data() + b * columns_);
        }
      }
    };
    if (split) {
      run_.pool.ParallelFor(blocks, run_.Grain(order::kColumnBlock * columns_), reduce);
    } else {
      reduce(0, blocks);
    }
    for (int64_t c = 0; c < columns_; ++c) run_.Fold(sums.data() + c, blocks, columns_);
    for (int64_t group = 0; group < groups_; ++group) {
      if (!pending[static_cast<size_t>(group)]) continue;
      const int64_t c = group * plan_.reduce1;
      run_.Fold(sums.data() + c, plan_.reduce1, 1);
      PairSums total = sums[static_cast<size_t>(c)];
      const auto i = static_cast<size_t>(group);
      if (!magnitudes_.empty() && !magnitudes_[i].finite() && !SumsPowers(plan_.statistic)) {
        SetShift(group, 0);
        total = NonFiniteSums(plan_.statistic, magnitudes_[i]);
      }
      if (run_.nearest.on) {
        const double scale = scale_[static_cast<size_t>(c)];
        summed_about_[i] = shift_[static_cast<size_t>(c)] / scale;
        sums_to_zero_[i] =
            !magnitudes_.empty() && WideSumsAreZero(plan_.statistic, total.second, magnitudes_[i], scale);
      }
      results_[i] = run_.Finish(plan_.statistic, total, run_.counted, shift_[static_cast<size_t>(c)],
                                scale_[static_cast<size_t>(c)], Precision::kExact);
    }
  }

  void ChooseScales() {
    std::vector<Magnitude> columns(static_cast<size_t>(columns_));
    for (int64_t b = 0; b < order::ColumnBlocks(plan_.reduce0); ++b) MeasureColumns(Block(b), columns.data());
    magnitudes_.resize(static_cast<size_t>(groups_));
    for (int64_t group = 0; group < groups_; ++group) {
      Magnitude& magnitude = magnitudes_[static_cast<size_t>(group)];
      for (int64_t i = 0; i < plan_.reduce1; ++i) {
        magnitude.Include(columns[static_cast<size_t>(group * plan_.reduce1 + i)]);
      }
      std::fill_n(scale_.begin() + group * plan_.reduce1, plan_.reduce1, ScaleFor(magnitude, run_.rule));
    }
  }

  const Run& run_;
  const NormPlan& plan_;
  const int64_t first_group_, first_k1_, groups_, columns_, stride_, offset_;
  const PositionScale* const pre_;
  const int64_t pre_stride_;
  const bool parameters_per_position_;
  const bool by_factors_;  // y is made with FactorColumns
  // One per column.
  std::vector<double> shift_;
  std::vector<float> shift32_;                         // for FAST
  std::unique_ptr<double[]> delta_hi_, inverse_hi_;    // not initialised before Reduce
  std::vector<double> scale_, delta_lo_, inverse_lo_;  // empty if by_factors_
  // One per group, or a single one for all groups if TakeGiven() or FinishTogether() wrote their statistics.
  std::vector<FinishedStatistics> results_;
  std::vector<Magnitude> magnitudes_;  // one per group, f64 only
  std::vector<double> summed_about_;   // one per group: the shifts of the sums, where y is rounded to the nearest value
  std::vector<bool> sums_to_zero_;     // likewise, see SumErrors::is_zero
  std::unique_ptr<NearestGroups> nearest_;  // if y is rounded to the nearest value
  Centring centring_ = Centring::kOnce;
};

// Runs the tiles of the groups [begin, end) of keep1 for every k0.
void RunTiles(const Run& run, int64_t begin, int64_t end, const PositionScale* pre, int64_t pre_stride) {
  const NormPlan& plan = run.plan;
  const int64_t groups_per_tile = std::max<int64_t>(1, kTileColumns / std::max<int64_t>(1, plan.reduce1));
  const int64_t tiles = order::CeilDiv(end - begin, groups_per_tile);
  const int64_t tasks = plan.keep0 * tiles;
  const int64_t task_elements =
      std::max<int64_t>(1, plan.reduce0 * plan.reduce1 * std::min(end - begin, groups_per_tile));
  const bool split = run.SplitsTasks(tasks, task_elements);
  const auto run_tasks = [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      const int64_t from = begin + task % tiles * groups_per_tile;
      ColumnTile tile(run, task / tiles, from, std::min(end, from + groups_per_tile), pre, pre_stride);
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
      const FinishedStatistics group = ReduceContiguous(run, Statistic::kMeanSquare, i * group_size, group_size);
      const DoublePair& inverse = group.statistics.inverse;
      pre[static_cast<size_t>(i)] = {group.statistics.scale, inverse.hi, inverse.lo};
    }
  });
  for (int64_t g = 0; g < groups; ++g) {
    RunTiles(run, g * group_size, (g + 1) * group_size, pre.data() + g, groups);
  }
}

}  // namespace normd::cpu
