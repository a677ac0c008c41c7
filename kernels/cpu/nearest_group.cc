#include "kernels/cpu/nearest_group.h"

#include <algorithm>
#include <cmath>

namespace normd::cpu {
namespace {

// The index of element (k0, r0, k1, r1) in memory.
int64_t IndexOf(const NormPlan& plan, int64_t k0, int64_t r0, int64_t k1, int64_t r1) {
  return ((k0 * plan.reduce0 + r0) * plan.keep1 + k1) * plan.reduce1 + r1;
}

}  // namespace

GroupBound::GroupBound(const Run& run, const SumErrors& sums, const FinishedStatistics& group) {
  const NormPlan& plan = run.plan;
  const bool centred = plan.statistic == Statistic::kMeanVariance;
  const auto n = static_cast<double>(run.counted);
  if (!run.wide()) {
    const bool sums_are_finite = plan.given_statistics || std::isfinite(group.m2);
    is_finite = sums_are_finite && std::isfinite(group.mean) && std::isfinite(group.inverse_std);
    if (plan.given_statistics) is_finite = is_finite && group.inverse_std != 0;
    bound = plan.given_statistics ? BoundOfGiven(group)
            : centred             ? BoundAboutMean(n, sums, group)
                                  : BoundAboutZero(plan.statistic, sums, group);
    return;
  }
  // The sums of a group that is not finite are Inf or NaN, and its 1 / D is 0 or NaN.
  const double inverse = group.statistics.inverse.hi;
  is_finite = std::isfinite(inverse) && inverse != 0 && std::isfinite(group.statistics.delta.hi);
  if (plan.given_statistics) is_finite = is_finite && std::isfinite(group.mean) && std::isfinite(group.inverse_std);
  ElementErrors elements;
  // The largest magnitude is that of the high parts.
  const bool in_pairs = run.x.lo != nullptr && plan.statistic != Statistic::kMaxAbs;
  if (run.given_residual.data != nullptr) elements.relative = in_pairs ? 2 * kPairUnit : kUnit;
  const bool is_equal = sums.is_zero && elements.relative == 0 && (!centred || group.mean == sums.shift);
  bound = plan.given_statistics                    ? WideBoundOfGiven(centred, elements, group)
          : is_equal                               ? WideBoundOfEqual(group)
          : centred                                ? WideBoundAboutMean(n, sums, elements, group)
          : plan.statistic == Statistic::kPowerSum ? WideBoundOfWholeOrder(sums, elements, group)
                                                   : WideBoundAboutZero(sums, elements, group);
  normalises_to_zero = is_equal && run.job.mask == nullptr && plan.statistic_reduce1 == plan.reduce1;
  // What is lost where x * scale, scale * r or n is so small that its low part is no f64.
  if (!normalises_to_zero) bound.beta += 0x1p-1070 * (1 + inverse + group.inverse_std);
}

ElementBound GroupBound::Of(const Run& run, double weight, double bias) const {
  if (!is_finite) return {-1, 0};
  const bool in_pairs = run.plan.dtype == DType::kF64;
  ElementBound elements = run.wide() ? BoundOfWideElements(bound, in_pairs ? kPairUnit : kUnit, weight, bias)
                                     : BoundOfElements(bound, weight, bias);
  const double factor = run.nearest.bound_factor;
  if (std::isinf(factor)) return {};
  elements.fixed *= factor;
  elements.relative *= factor;
  // Digits of pairs that small are lost.
  if (in_pairs && !normalises_to_zero) elements.fixed += 0x1p-1000;
  return elements;
}

void NearestGroups::Reader::operator()(absl::FunctionRef<void(const slow_road::Element*, int64_t)> take) const {
  constexpr int64_t kAtOnce = 64;  // groups may be short and many
  const NormPlan& plan = run->plan;
  const uint8_t* const mask = run->job.mask;
  const Elements& residual = run->given_residual;
  double values[kAtOnce];
  double residuals[kAtOnce];
  std::fill_n(residuals, kAtOnce, -0.0);
  slow_road::Element elements[kAtOnce];
  for (int64_t r0 = 0; r0 < plan.reduce0; ++r0) {
    for (int64_t at = 0; at < plan.statistic_reduce1; at += kAtOnce) {
      const int64_t count = std::min(kAtOnce, plan.statistic_reduce1 - at);
      const int64_t index = IndexOf(plan, k0, r0, k1, at);
      ConvertToF64(run->GivenX(index), count, values);
      if (residual.data != nullptr) ConvertToF64(residual.At(index), count, residuals);
      int64_t kept = 0;
      for (int64_t i = 0; i < count; ++i) {
        // Rows have a byte of the mask for each element, columns one for each position.
        const int64_t place = plan.pattern == Pattern::kRows ? r0 * plan.reduce1 + at + i : r0;
        if (mask == nullptr || mask[place] != 0) elements[kept++] = {values[i], residuals[i]};
      }
      take(elements, kept);
    }
  }
}

slow_road::SlowGroup& NearestGroups::At(int64_t k1) {
  std::unique_ptr<Group>& group = groups_[static_cast<size_t>(k1 - begin_)];
  if (group != nullptr) return group->slow;
  const NormPlan& plan = run_.plan;
  slow_road::Formula formula = {.statistic = plan.statistic,
                                .rule = run_.rule,
                                .counted = run_.counted,
                                .scale = run_.given_residual.data == nullptr ? 1 : run_.job.residual_scale,
                                .is_given = plan.given_statistics};
  if (plan.given_statistics) {
    formula.given_mean = run_.job.given_mean == nullptr ? 0 : run_.job.given_mean[k1];
    formula.given_variance = run_.job.given_variance[k1];
  }
  using First = slow_road::SlowGroup::FirstRung;
  group = std::make_unique<Group>(formula, Reader{&run_, k0_, k1},
                                  run_.nearest.exact_first ? First::kExact : First::kPairs);
  return group->slow;
}

// Narrow elements are what the kernel reported, since y may be x. Wide ones are read as they were given.
slow_road::Element NearestGroups::ElementAt(int64_t index, double x) const {
  if (!run_.wide()) return {x, -0.0};
  slow_road::Element element;
  ConvertToF64(run_.GivenX(index), 1, &element.x);
  if (run_.given_residual.data != nullptr) ConvertToF64(run_.given_residual.At(index), 1, &element.r);
  return element;
}

slow_road::Affine NearestGroups::AffineOf(int64_t r0, int64_t k1, int64_t r1) const {
  const NormPlan& plan = run_.plan;
  slow_road::Affine affine;
  if (run_.job.parameters == nullptr) return affine;
  const HostParameters& host = run_.job.parameters->host();
  const int64_t at = plan.affine_index == AffineIndex::kElement ? r0 * plan.reduce1 + r1
                                                                : k1 * plan.channels_per_keep1 + r1 / plan.channel_run;
  const auto i = static_cast<size_t>(at);
  if (!host.weight.empty()) affine.weight = {host.weight[i], host.weight_rest.empty() ? 0 : host.weight_rest[i]};
  if (!host.bias.empty()) affine.bias = host.bias[i];
  return affine;
}

void NearestGroups::StoreGroup(int64_t k1) {
  const Job& job = run_.job;
  const int64_t group = k0_ * run_.plan.keep1 + k1;
  const DType dtype = run_.plan.StatisticsDType();
  const slow_road::Format format = slow_road::FormatOf(dtype);
  const auto store = [&](double value, void* to) {
    ConvertFromF64(&value, 1, dtype, static_cast<char*>(to) + group * SizeOf(dtype));
  };
  const std::lock_guard<std::mutex> lock(mutex_);
  slow_road::SlowGroup& slow = At(k1);
  if (job.mean != nullptr) store(slow.NearestMean(format), job.mean);
  if (job.inverse_std != nullptr) store(slow.NearestInverse(format), job.inverse_std);
  if (job.moments == nullptr || run_.plan.given_statistics) return;
  job.moments[group] = {static_cast<double>(run_.counted), slow.NearestMean(slow_road::FormatOf(DType::kF64)),
                        slow.NearestM2()};
}

void NearestGroups::Decide(int64_t r0, int64_t k1, int64_t r1, double x) {
  const slow_road::Format format = slow_road::FormatOf(run_.plan.dtype);
  const slow_road::Affine affine = AffineOf(r0, k1, r1);
  const int64_t index = IndexOf(run_.plan, k0_, r0, k1, r1);
  const slow_road::Element element = ElementAt(index, x);
  // `x` is the sum with the residual, which may overflow although neither is Inf.
  if (!std::isfinite(x) || !std::isfinite(element.x) || !std::isfinite(element.r)) return;
  if (!std::isfinite(affine.weight.hi) || !std::isfinite(affine.bias)) return;
  const bool casts_first = run_.plan.cast_order == CastOrder::kCastThenAffine;
  double y = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    y = At(k1).Nearest(format, element, casts_first ? slow_road::Affine() : affine);
  }
  if (casts_first) y = slow_road::ApplyIn(format, y, affine);
  ConvertFromF64(&y, 1, run_.plan.dtype, static_cast<char*>(run_.y) + index * SizeOf(run_.plan.dtype));
}

}  // namespace normd::cpu
