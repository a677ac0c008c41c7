#include "kernels/cpu/nearest_group.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace normd::cpu {
namespace {

// The index of element (k0, r0, k1, r1) in memory.
int64_t IndexOf(const NormPlan& plan, int64_t k0, int64_t r0, int64_t k1, int64_t r1) {
  return ((k0 * plan.reduce0 + r0) * plan.keep1 + k1) * plan.reduce1 + r1;
}

}  // namespace

GroupBound::GroupBound(const Run& run, const SumErrors& sums, const FinishedStatistics& group) {
  const NormPlan& plan = run.plan;
  const bool sums_are_finite = plan.given_statistics || std::isfinite(group.m2);
  is_finite = sums_are_finite && std::isfinite(group.mean) && std::isfinite(group.inverse_std);
  if (plan.given_statistics) {
    bound = BoundOfGiven(group);
  } else if (plan.statistic == Statistic::kMeanVariance) {
    bound = BoundAboutMean(static_cast<double>(run.counted), sums, group);
  } else {
    bound = BoundAboutZero(plan.statistic, sums, group);
  }
}

ElementBound GroupBound::Of(const Run& run, double weight, double bias) const {
  if (!is_finite) return {-1, 0};
  ElementBound elements = BoundOfElements(bound, weight, bias);
  const double factor = run.nearest.bound_factor;
  if (std::isinf(factor)) return {};
  elements.fixed *= factor;
  elements.relative *= factor;
  return elements;
}

void NearestGroups::Reader::operator()(absl::FunctionRef<void(const slow_road::Element*, int64_t)> take) const {
  constexpr int64_t kAtOnce = 256;
  const NormPlan& plan = run->plan;
  const uint8_t* const mask = run->job.mask;
  const int64_t n = plan.statistic_reduce1 == plan.reduce1 ? plan.reduce1 : plan.statistic_reduce1;
  double values[kAtOnce];
  slow_road::Element elements[kAtOnce];
  for (int64_t r0 = 0; r0 < plan.reduce0; ++r0) {
    for (int64_t at = 0; at < n; at += kAtOnce) {
      const int64_t count = std::min(kAtOnce, n - at);
      ConvertToF64(run->X(IndexOf(plan, k0, r0, k1, at)), count, values);
      int64_t kept = 0;
      for (int64_t i = 0; i < count; ++i) {
        // Rows have a byte of the mask for each element, columns one for each position.
        const int64_t place = plan.pattern == Pattern::kRows ? r0 * plan.reduce1 + at + i : r0;
        if (mask == nullptr || mask[place] != 0) elements[kept++] = {values[i], 0};
      }
      take(elements, kept);
    }
  }
}

slow_road::SlowGroup& NearestGroups::At(int64_t k1) {
  std::unique_ptr<Group>& group = groups_[static_cast<size_t>(k1 - begin_)];
  if (group != nullptr) return group->slow;
  const NormPlan& plan = run_.plan;
  slow_road::Formula formula = {
      .statistic = plan.statistic, .rule = run_.rule, .counted = run_.counted, .is_given = plan.given_statistics};
  if (plan.given_statistics) {
    formula.given_mean = run_.job.given_mean == nullptr ? 0 : run_.job.given_mean[k1];
    formula.given_variance = run_.job.given_variance[k1];
  }
  using First = slow_road::SlowGroup::FirstRung;
  group = std::make_unique<Group>(formula, Reader{&run_, k0_, k1},
                                  run_.nearest.exact_first ? First::kExact : First::kPairs);
  return group->slow;
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

void NearestGroups::Decide(int64_t r0, int64_t k1, int64_t r1, double x) {
  const slow_road::Format format = slow_road::FormatOf(run_.plan.dtype);
  const slow_road::Affine affine = AffineOf(r0, k1, r1);
  if (!std::isfinite(x) || !std::isfinite(affine.weight.hi) || !std::isfinite(affine.bias)) return;
  const bool casts_first = run_.plan.cast_order == CastOrder::kCastThenAffine;
  double y = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    y = At(k1).Nearest(format, {x, 0}, casts_first ? slow_road::Affine() : affine);
  }
  if (casts_first) y = slow_road::ApplyIn(format, y, affine);
  const int64_t index = IndexOf(run_.plan, k0_, r0, k1, r1);
  ConvertFromF64(&y, 1, run_.plan.dtype, static_cast<char*>(run_.y) + index * SizeOf(run_.plan.dtype));
}

}  // namespace normd::cpu
