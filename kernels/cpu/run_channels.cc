// The walkers of adjacent channels, whose elements are applied in the order of memory: channels that are summed, in
// blocks that stay in L2 between the two passes, and channels whose statistics are given. Channel by channel, the
// segments would lie a whole sample apart, and a segment of 49 elements would cost more to set up than to calculate.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "kernels/cpu/factor_columns.h"
#include "kernels/cpu/nearest_channels.h"
#include "kernels/cpu/nearest_group.h"
#include "kernels/cpu/run.h"
#include "kernels/summation_order.h"

namespace normd::cpu {
namespace {

// A part of L2 for the x of a block; its y takes as much.
constexpr int64_t kBlockBytes = 128 << 10;

// Adjacent channels whose statistics are ready for the apply pass. Borrows them.
struct ReadyChannels {
  ColumnStatistics statistics;  // shift, delta_hi and inverse_hi
  int64_t first = 0;            // the channel of keep1 whose statistics come first
  int64_t count = 0;
  Centring centring = Centring::kOnce;
  bool may_be_nan = true;
};

// The apply pass over channels in the order of memory.
class ChannelElements {
 public:
  ChannelElements(const Run& run, const ReadyChannels& channels) : run_(run), first_(channels.first) {
    const Parameters parameters = run.parameters.At(first_);
    statistics_ = channels.statistics;
    span_.y_dtype = run.plan.dtype;
    span_.columns = span_.stride = run.plan.reduce1;
    span_.statistics_per_position = true;
    span_.centring = channels.centring;
    span_.may_be_nan = channels.may_be_nan;
    factors_.Fill(statistics_, parameters.weight, parameters.bias, channels.count);
  }

  // Applies the channels [begin, end) of keep1 in `samples` samples, of which the first begins at index `sample` of the
  // whole tensor.
  void Apply(int64_t begin, int64_t end, int64_t sample, int64_t samples) const {
    const NormPlan& plan = run_.plan;
    const int64_t c = begin - first_;
    ColumnStatistics here;
    here.shift = statistics_.shift + c;
    here.delta_hi = statistics_.delta_hi + c;
    here.inverse_hi = statistics_.inverse_hi + c;
    ApplySpan span = span_;
    span.positions = end - begin;
    span.column_statistics = &here;
    span.factors = factors_.At(c);
    span.parameters = run_.parameters.At(begin);
    for (int64_t i = 0; i < samples; ++i, sample += plan.keep1 * plan.reduce1) {
      const int64_t at = sample + begin * plan.reduce1;
      span.x = run_.X(at);
      span.y = static_cast<char*>(run_.y) + at * SizeOf(plan.dtype);
      cpu::Apply(span);
    }
  }

 private:
  const Run& run_;
  const int64_t first_;
  ColumnStatistics statistics_;
  ApplySpan span_;
  FactorColumns factors_;
};

// A block: the channels [begin, end) of keep1 for one k0.
class BlockOfChannels {
 public:
  BlockOfChannels(const cpu::Run& run, int64_t k0, int64_t begin, int64_t end)
      : run_(run), plan_(run.plan), k0_(k0), begin_(begin), count_(end - begin) {}

  // `one` runs a group by itself.
  void Run(absl::FunctionRef<void(int64_t)> one) {
    ReduceChannels({.x = run_.X(FirstSample() + begin_ * plan_.reduce1),
                    .channels = count_,
                    .n = plan_.reduce1,
                    .segments = plan_.reduce0,
                    .stride = plan_.keep1 * plan_.reduce1,
                    .precision = run_.precision(),
                    .rule = run_.rule,
                    .additions = AdditionsInRows(plan_.reduce0, plan_.reduce1)},
                   &statistics_);
    if (run_.to_nearest) return RunNearest(one);
    std::optional<ChannelElements> elements;
    if (run_.y != nullptr) elements.emplace(run_, Ready());
    for (int64_t c = 0; c < count_;) {
      if (!statistics_.settled[c]) {
        one(Group(c++));
        continue;
      }
      int64_t stop = c + 1;
      while (stop < count_ && statistics_.settled[stop]) ++stop;
      run_.StoreChannels(Group(c), statistics_, c, stop);
      if (run_.y != nullptr) elements->Apply(begin_ + c, begin_ + stop, FirstSample(), plan_.reduce0);
      c = stop;
    }
  }

 private:
  int64_t Group(int64_t c) const { return k0_ * plan_.keep1 + begin_ + c; }
  // The index of the first element of the block's first sample.
  int64_t FirstSample() const { return k0_ * plan_.reduce0 * plan_.keep1 * plan_.reduce1; }

  ReadyChannels Ready() const {
    ReadyChannels ready = {
        .first = begin_, .count = count_, .may_be_nan = false};  // the statistics of settled channels are finite
    ready.statistics.shift = statistics_.shift;
    ready.statistics.delta_hi = statistics_.delta;
    ready.statistics.inverse_hi = statistics_.inverse;
    const double* const delta = statistics_.delta;
    if (std::any_of(delta, delta + count_, [](double d) { return d != 0; })) ready.centring = Centring::kTwice;
    return ready;
  }

  // Run() after the sums, to the nearest value.
  void RunNearest(absl::FunctionRef<void(int64_t)> one) {
    std::optional<NearestChannels> elements;
    if (run_.y != nullptr) elements.emplace(run_, NearestOnes());
    for (int64_t c = 0; c < count_; ++c) {
      if (!statistics_.settled[c]) {
        one(Group(c));
        continue;
      }
      run_.StoreChannels(Group(c), statistics_, c, c + 1);
      if (run_.StoresGroups()) StoreNearest(c);
    }
    for (int64_t c = 0; elements.has_value() && c < count_;) {
      int64_t stop = c;
      while (stop < count_ && statistics_.settled[stop]) ++stop;
      if (stop > c) elements->Apply({begin_ + c, begin_ + stop}, {k0_ * plan_.reduce0, plan_.reduce0});
      c = stop + 1;
    }
  }
  ReadyForNearest NearestOnes() const {
    return {.mean = statistics_.mean,
            .shift = statistics_.shift,
            .delta = statistics_.delta,
            .inverse = statistics_.inverse,
            .beta = statistics_.beta,
            .kappa = statistics_.kappa,
            .first = begin_,
            .count = count_};
  }
  void StoreNearest(int64_t c) const {
    FinishedStatistics result;
    result.mean = statistics_.mean[c];
    result.inverse_std = statistics_.inverse[c];
    GroupBound bound;
    bound.bound = {statistics_.beta[c], statistics_.kappa[c]};
    bound.is_finite = true;
    NearestGroups(run_, k0_, begin_ + c, 1).StoreGroup(begin_ + c, result, bound);
  }

  const cpu::Run& run_;
  const NormPlan& plan_;
  const int64_t k0_, begin_, count_;
  ChannelStatistics statistics_;
};

// The number of channels of a block; 0: not even one fits.
int64_t BlockChannels(const NormPlan& plan) {
  const int64_t bytes = plan.reduce0 * plan.reduce1 * SizeOf(plan.dtype);
  return std::min(kBlockBytes / bytes, ChannelBlock::kMaxChannels);
}

}  // namespace

bool TakesChannels(const Run& run) {
  const NormPlan& plan = run.plan;
  // Longer segments of f32 wait for memory, and gain more where the next group is fetched ahead.
  const bool gains = run.is_16bit() || plan.reduce1 <= ChannelBlock::kMaxShort;
  return plan.statistic == Statistic::kMeanVariance && !plan.given_statistics && !run.wide() && !run.stream &&
         std::isfinite(run.nearest.bound_factor) && run.job.mask == nullptr &&
         plan.cast_order == CastOrder::kAffineThenCast && plan.affine_index == AffineIndex::kChannel &&
         plan.channels_per_keep1 == 1 && plan.elements > 0 && gains &&
         ChannelBlock::Takes(plan.reduce0, plan.reduce1) && BlockChannels(plan) > 0;
}

void RunChannels(const Run& run, int64_t begin, int64_t end, absl::FunctionRef<void(int64_t)> one) {
  const NormPlan& plan = run.plan;
  const int64_t at_once = BlockChannels(plan);
  while (begin < end) {
    const int64_t channel = begin % plan.keep1;
    const int64_t count = std::min({at_once, end - begin, plan.keep1 - channel});
    BlockOfChannels(run, begin / plan.keep1, channel, channel + count).Run(one);
    begin += count;
  }
}

bool TakesGivenChannels(const Run& run) {
  const NormPlan& plan = run.plan;
  const bool is_known = plan.given_statistics || run.known != nullptr;
  const bool is_ready = run.to_nearest
                            ? is_known && !run.wide() && !run.StoresGroups() && std::isfinite(run.nearest.bound_factor)
                            : run.given.has_value() && !run.stream;
  return is_ready && run.y != nullptr && plan.statistic == Statistic::kMeanVariance &&
         plan.cast_order == CastOrder::kAffineThenCast && plan.affine_index == AffineIndex::kChannel &&
         plan.channels_per_keep1 == 1 && !run.SplitsTasks(plan.keep0 * plan.reduce0 * plan.keep1, plan.reduce1);
}

void RunGivenChannels(const Run& run) {
  const NormPlan& plan = run.plan;
  if (run.to_nearest) return RunGivenNearest(run);
  const GivenGroups& given = *run.given;
  ReadyChannels ready = {.count = plan.keep1, .centring = given.has_delta ? Centring::kTwice : Centring::kOnce};
  ready.statistics.shift = given.shift.data();
  ready.statistics.delta_hi = given.delta.data();
  ready.statistics.inverse_hi = given.inverse.data();
  const ChannelElements elements(run, ready);
  run.pool.ParallelFor(plan.keep0 * plan.reduce0 * plan.keep1, run.Grain(plan.reduce1),
                       [&](int64_t begin, int64_t end) {
                         while (begin < end) {
                           const int64_t channel = begin % plan.keep1;
                           const int64_t stop = std::min(plan.keep1, channel + end - begin);
                           elements.Apply(channel, stop, (begin - channel) * plan.reduce1, 1);
                           begin += stop - channel;
                         }
                       });
}

}  // namespace normd::cpu
