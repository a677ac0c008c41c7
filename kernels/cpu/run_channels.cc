// The walker of adjacent channels: their statistics, then their elements in the order of memory, in blocks of channels
// that stay in L2 between the two. Channel by channel, the segments would lie a whole sample apart, and a segment of 49
// elements would cost more to set up than to calculate.
#include <algorithm>
#include <cstdint>

#include "kernels/cpu/factor_columns.h"
#include "kernels/cpu/run.h"
#include "kernels/summation_order.h"

namespace normd::cpu {
namespace {

// A part of L2 for the x of a block; its y takes as much.
constexpr int64_t kBlockBytes = 128 << 10;

// What the elements of all blocks of a run have in common, as far as cpu::Apply is asked.
ApplySpan SpanOf(const Run& run) {
  const NormPlan& plan = run.plan;
  ApplySpan span;
  span.y_dtype = plan.dtype;
  span.columns = span.stride = plan.reduce1;
  span.statistics_per_position = true;
  span.parameters_per_position = !run.parameters.absent();
  span.in_f32 = (run.is_16bit() || run.precision() == Precision::kFast) && run.parameters.fit_f32;
  span.may_be_nan = !run.parameters.fit_f32;  // the statistics of settled channels are finite
  return span;
}

// A block: the statistics groups [begin, end) of keep1 for one k0.
class BlockOfChannels {
 public:
  BlockOfChannels(const cpu::Run& run, int64_t k0, int64_t begin, int64_t end)
      : run_(run), plan_(run.plan), k0_(k0), begin_(begin), count_(end - begin) {}

  // `one` runs a group by itself.
  void Run(absl::FunctionRef<void(int64_t)> one) {
    ReduceChannels({.x = run_.X(Segment(0, 0)),
                    .channels = count_,
                    .n = plan_.reduce1,
                    .segments = plan_.reduce0,
                    .stride = plan_.keep1 * plan_.reduce1,
                    .precision = run_.precision(),
                    .rule = run_.rule},
                   &statistics_);
    if (run_.y != nullptr) Prepare();
    for (int64_t c = 0; c < count_;) {
      if (!statistics_.settled[c]) {
        one(Group(c++));
        continue;
      }
      int64_t stop = c + 1;
      while (stop < count_ && statistics_.settled[stop]) ++stop;
      run_.StoreChannels(Group(c), statistics_, c, stop);
      if (run_.y != nullptr) Apply(c, stop);
      c = stop;
    }
  }

 private:
  int64_t Group(int64_t c) const { return k0_ * plan_.keep1 + begin_ + c; }
  // The index of the first element of segment r0 of channel c of the block.
  int64_t Segment(int64_t r0, int64_t c) const {
    return ((k0_ * plan_.reduce0 + r0) * plan_.keep1 + begin_ + c) * plan_.reduce1;
  }
  ColumnStatistics StatisticsAt(int64_t c) const {
    ColumnStatistics at;
    at.shift = statistics_.shift + c;
    at.delta_hi = statistics_.delta + c;
    at.inverse_hi = statistics_.inverse + c;
    return at;
  }

  void Prepare() {
    span_ = SpanOf(run_);
    const Parameters parameters = run_.parameters.At(begin_);
    if (span_.in_f32) {
      factors32_.Fill(StatisticsAt(0), parameters.weight, parameters.bias, count_);
    } else {
      factors_.Fill(StatisticsAt(0), parameters.weight, parameters.bias, count_);
    }
  }

  void Apply(int64_t begin, int64_t end) {
    const bool twice = std::any_of(statistics_.delta + begin, statistics_.delta + end, [](double d) { return d != 0; });
    const ColumnStatistics here = StatisticsAt(begin);
    span_.positions = end - begin;
    span_.centring = twice ? Centring::kTwice : Centring::kOnce;
    span_.column_statistics = &here;
    span_.factors = factors_.At(begin);
    span_.factors32 = factors32_.At(begin);
    span_.parameters = run_.parameters.At(begin_ + begin);
    for (int64_t r0 = 0; r0 < plan_.reduce0; ++r0) {
      const int64_t at = Segment(r0, begin);
      span_.x = run_.X(at);
      span_.y = static_cast<char*>(run_.y) + at * SizeOf(plan_.dtype);
      cpu::Apply(span_);
    }
  }

  const cpu::Run& run_;
  const NormPlan& plan_;
  const int64_t k0_, begin_, count_;
  ChannelStatistics statistics_;
  ApplySpan span_;
  FactorColumns<double> factors_;
  FactorColumns<float> factors32_;
};

// The number of channels of a block; 0: not even one fits.
int64_t BlockChannels(const NormPlan& plan) {
  const int64_t bytes = plan.reduce0 * plan.reduce1 * SizeOf(plan.dtype);
  return std::min(kBlockBytes / bytes, ChannelBlock::kMaxChannels);
}

}  // namespace

bool TakesChannels(const Run& run) {
  const NormPlan& plan = run.plan;
  // Without parameters, elements that are calculated in f64 have a form of their own in each channel.
  const bool has_factors = !run.parameters.absent() || run.is_16bit() || run.precision() == Precision::kFast;
  // Longer segments of f32 wait for memory, and gain more where the next group is fetched ahead.
  const bool gains = run.is_16bit() || plan.reduce1 <= ChannelBlock::kMaxShort;
  return plan.statistic == Statistic::kMeanVariance && !plan.given_statistics && !run.wide() && !run.stream &&
         run.job.mask == nullptr && has_factors && plan.cast_order == CastOrder::kAffineThenCast &&
         plan.affine_index == AffineIndex::kChannel && plan.channels_per_keep1 == 1 && plan.elements > 0 && gains &&
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

}  // namespace normd::cpu
