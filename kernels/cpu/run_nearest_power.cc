// The walker of PowerNorm to the nearest value. Its divisor is that of two groups, the channels of a position and the
// positions of a channel. The kernels of nearest_power.h decide what their bounds let them decide; the slow road
// decides the other elements, those of a residual stream that is kept wide, and positions with NaN or Inf.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/cpu/nearest_power.h"
#include "kernels/cpu/nearest_power_group.h"
#include "kernels/cpu/nearest_power_terms.h"
#include "kernels/cpu/run.h"
#include "kernels/summation_order.h"

namespace normd::cpu {
namespace {

using slow_road::Element;
using slow_road::SlowGroup;

class NearestPowerNorm {
 public:
  explicit NearestPowerNorm(const PowerRun& power)
      : power_(power), run_(power.run), plan_(run_.plan), channels_(power.channels), size_(power.size) {}

  void FindDivisors() {
    if (plan_.given_statistics) {
      for (int64_t c = 0; c < channels_; ++c) divisors_.push_back({.v = run_.job.given_variance[c]});
    } else {
      divisors_ = DivisorsOf(power_);
    }
    if (!run_.StoresGroups()) return;
    constexpr int64_t kAtOnce = 64;  // some ten microseconds
    run_.pool.ParallelFor(channels_, kAtOnce, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) StoreStatistics(c);
    });
  }

  void WriteElements() {
    if (power_.uses_kernels) MakeFactors();
    const int64_t at_once = PositionsAtOnce();
    const int64_t blocks = order::CeilDiv(plan_.reduce0, at_once);
    run_.pool.ParallelFor(blocks, run_.Grain(at_once * channels_), [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * at_once;
        const int64_t positions = std::min(at_once, plan_.reduce0 - first);
        for (int64_t channel = 0; channel < channels_; channel += size_) {
          ApplyRows(first * channels_ + channel, positions);
        }
      }
    });
  }

 private:
  double VarianceOf(int64_t c) const { return divisors_[static_cast<size_t>(c)].v; }

  // The outputs of a channel.
  void StoreStatistics(int64_t c) const {
    const double variance = VarianceOf(c);
    FinishedStatistics result;
    result.m2 = divisors_[static_cast<size_t>(c)].m2;
    result.inverse_std = 1 / std::sqrt(variance + run_.rule.eps);
    if (run_.job.inverse_std != nullptr && std::isfinite(variance)) result.inverse_std = NearestInverse(variance);
    run_.StoreGroup(c, result);
    if (run_.job.mean_squares != nullptr) run_.job.mean_squares[c] = variance;
  }
  // 1 / sqrt(v + eps) of the type of statistics.
  double NearestInverse(double variance) const {
    const auto nothing = [](absl::FunctionRef<void(const Element*, int64_t)> /*take*/) {};
    SlowGroup slow(
        {.statistic = Statistic::kMeanSquare, .rule = run_.rule, .is_given = true, .given_variance = variance},
        nothing);
    return slow.NearestInverse(slow_road::FormatOf(plan_.StatisticsDType()));
  }

  slow_road::Affine AffineOf(int64_t c) const {
    slow_road::Affine affine;
    if (run_.job.parameters == nullptr) return affine;
    const HostParameters& host = run_.job.parameters->host();
    const auto i = static_cast<size_t>(c);
    if (!host.weight.empty()) affine.weight = {host.weight[i], host.weight_rest.empty() ? 0 : host.weight_rest[i]};
    if (!host.bias.empty()) affine.bias = host.bias[i];
    return affine;
  }
  bool CastsFirst() const { return plan_.cast_order == CastOrder::kCastThenAffine; }

  // The numbers of the channels for the kernels.
  void MakeFactors() {
    const auto room = static_cast<size_t>(channels_ + kMostPowerLanes);
    factor_.resize(room);
    factor_lo_.resize(room);
    bias_.assign(room, -0.0);
    if (CastsFirst()) {
      weight_.resize(room);
      added_.assign(room, -0.0);
    }
    for (int64_t c = 0; c < channels_; ++c) {
      const auto i = static_cast<size_t>(c);
      const slow_road::Affine affine = AffineOf(c);
      const DoublePair factor = FactorOf(VarianceOf(c), CastsFirst() ? DoublePair{1, 0} : affine.weight);
      const bool has_rest = CastsFirst() && affine.weight.lo != 0;  // which the kernels do not multiply by
      factor_[i] = has_rest ? std::numeric_limits<double>::quiet_NaN() : factor.hi;
      factor_lo_[i] = factor.lo;
      (CastsFirst() ? added_ : bias_)[i] = affine.bias;
      if (CastsFirst()) weight_[i] = affine.weight.hi;
    }
  }
  // w / sqrt(v + eps), or NaN where the kernels may not use it.
  DoublePair FactorOf(double variance, DoublePair weight) const {
    constexpr DoublePair kNone = {std::numeric_limits<double>::quiet_NaN(), 0};
    const DoublePair square = TwoSum(variance, run_.rule.eps);
    if (!(square.hi >= 0x1p-500 && square.hi <= 0x1p+500)) return kNone;
    if (weight.hi == 0) return {weight.hi, 0};  // a product of pairs would lose the sign
    const DoublePair factor = Multiply(Reciprocal(Sqrt(square)), weight);
    const double magnitude = std::abs(factor.hi);
    return magnitude >= 0x1p-300 && magnitude <= 0x1p+300 ? factor : kNone;
  }

  // As many positions as share the work among the threads, and stay in a near cache between their sums and y.
  int64_t PositionsAtOnce() const {
    constexpr int64_t kElements = int64_t{1} << 13;
    const int64_t share = order::CeilDiv(plan_.reduce0, int64_t{4} * run_.pool.threads());
    return std::clamp(std::min(share, kElements / channels_), int64_t{1}, PowerRows::kMostRows);
  }

  // Writes y of a group of channels at some positions, of which the first begins at the element `begin`.
  void ApplyRows(int64_t begin, int64_t positions) const {
    std::optional<ScalingGroup> group;
    int64_t row_of_group = -1;
    auto report = [&](int64_t row, int64_t i) {
      if (row != row_of_group) group.emplace(run_, begin + row * channels_, size_);
      row_of_group = row;
      const int64_t index = begin + row * channels_ + i;
      const double y = ValueOf(index % channels_, i, &*group);
      ConvertFromF64(&y, 1, plan_.dtype, static_cast<char*>(run_.y) + index * SizeOf(plan_.dtype));
    };
    uint32_t taken = 0;
    if (power_.uses_kernels) {
      PowerRows rows = RowsAt(begin, positions);
      rows.context = &report;
      rows.report = [](void* of, int64_t row, int64_t i) { (*static_cast<decltype(report)*>(of))(row, i); };
      taken = ApplyPowerRows(rows);
    }
    for (int64_t row = 0; row < positions; ++row) {
      if ((taken >> row & 1) == 0) WriteSlowly(begin + row * channels_);
    }
  }
  PowerRows RowsAt(int64_t begin, int64_t positions) const {
    const int64_t channel = begin % channels_;
    return {.x = run_.X(begin),
            .y = static_cast<char*>(run_.y) + begin * SizeOf(plan_.dtype),
            .rows = positions,
            .n = size_,
            .stride = channels_,
            .eps = run_.rule.eps,
            .factor = factor_.data() + channel,
            .factor_lo = factor_lo_.data() + channel,
            .bias = bias_.data() + channel,
            .has_bias = run_.job.parameters != nullptr && !run_.job.parameters->host().bias.empty(),
            .weight = CastsFirst() ? weight_.data() + channel : nullptr,
            .added = CastsFirst() ? added_.data() + channel : nullptr,
            .cast_order = plan_.cast_order,
            .bound = power_.bound};
  }

  void WriteSlowly(int64_t begin) const {
    ScalingGroup group(run_, begin, size_);
    std::vector<double> y(static_cast<size_t>(size_));
    for (int64_t i = 0; i < size_; ++i) y[static_cast<size_t>(i)] = ValueOf(begin % channels_ + i, i, &group);
    ConvertFromF64(y.data(), size_, plan_.dtype, static_cast<char*>(run_.y) + begin * SizeOf(plan_.dtype));
  }

  // y of channel c, which is element i of its group.
  double ValueOf(int64_t c, int64_t i, ScalingGroup* group) const {
    const double variance = VarianceOf(c);
    const Element& element = (*group)[i];
    if (std::isnan(variance) || (!group->has_divisor() && !group->MakesZero(element))) {
      return std::numeric_limits<double>::quiet_NaN();
    }
    const slow_road::Affine affine = AffineOf(c);
    const slow_road::Format format = slow_road::FormatOf(plan_.dtype);
    if (variance + run_.rule.eps == 0) {
      return slow_road::ApplyIn(format, (group->has_divisor() ? group->SignOf(element) : 0) / 0.0, affine);
    }
    if (!group->has_divisor() || std::isinf(variance)) {
      return slow_road::ApplyIn(format, std::copysign(0.0, group->SignOf(element)), affine);
    }
    return Nearest(format, element, variance, affine, &group->slow());
  }

  double Nearest(const slow_road::Format& format, const Element& element, double variance,
                 const slow_road::Affine& affine, SlowGroup* slow) const {
    slow_road::Affine scaled = CastsFirst() ? slow_road::Affine() : affine;
    scaled.variance = variance;
    const double y = slow->Nearest(format, element, scaled);
    return CastsFirst() ? slow_road::ApplyIn(format, y, affine) : y;
  }

  const PowerRun& power_;
  const Run& run_;
  const NormPlan& plan_;
  const int64_t channels_, size_;
  std::vector<ChannelDivisor> divisors_;
  // The numbers of the channels for the kernels, with the room that these want.
  std::vector<double> factor_, factor_lo_, bias_, weight_, added_;
};

}  // namespace

void RunNearestPowerNorm(const Run& run) {
  if (run.plan.elements == 0) {
    Run by_kernels = run;
    by_kernels.to_nearest = false;
    return RunPowerNorm(by_kernels);
  }
  const PowerRun power = {run};
  NearestPowerNorm nearest(power);
  nearest.FindDivisors();
  if (run.y != nullptr) nearest.WriteElements();
}

}  // namespace normd::cpu
