#include "kernels/cpu/nearest_group.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/pair_sums.h"

namespace normd::cpu {
namespace {

// The elements that are remembered for later: 128 KiB.
constexpr size_t kMostAdded = 4096;

// Collects the elements of a group from runs of a few, in the type of the elements, and converts many at once: down a
// column there is one element in each run.
class ElementReader {
 public:
  explicit ElementReader(absl::FunctionRef<void(const slow_road::Element*, int64_t)> take) : take_(take) {
    std::fill_n(residuals_, kAtOnce, -0.0);
  }
  ~ElementReader() { Flush(); }
  ElementReader(const ElementReader&) = delete;
  ElementReader& operator=(const ElementReader&) = delete;

  // Adds n adjacent elements; `residual` may have no data.
  void Add(const Elements& x, const Elements& residual, int64_t n) {
    for (int64_t i = 0; i < n;) {
      const int64_t count = std::min(n - i, kAtOnce - size_);
      x_dtype_ = x.dtype;
      Copy(x.At(i), count, x_);
      if (residual.data != nullptr) {
        residual_dtype_ = residual.dtype;
        has_residual_ = true;
        Copy(residual.At(i), count, residual_);
      }
      size_ += count;
      i += count;
      if (size_ == kAtOnce) Flush();
    }
  }

 private:
  static constexpr int64_t kAtOnce = 64;  // groups may be short and many

  void Copy(const Elements& from, int64_t n, char* to) const {
    const int64_t size = SizeOf(from.dtype);
    std::memcpy(to + size_ * size, from.data, static_cast<size_t>(n * size));
  }
  void Flush() {
    if (size_ == 0) return;
    ConvertToF64({x_dtype_, x_}, size_, values_);
    if (has_residual_) ConvertToF64({residual_dtype_, residual_}, size_, residuals_);
    for (int64_t i = 0; i < size_; ++i) elements_[i] = {values_[i], residuals_[i]};
    take_(elements_, size_);
    size_ = 0;
  }

  const absl::FunctionRef<void(const slow_road::Element*, int64_t)> take_;
  int64_t size_ = 0;
  DType x_dtype_ = DType::kF32, residual_dtype_ = DType::kF32;
  bool has_residual_ = false;
  char x_[kAtOnce * sizeof(double)], residual_[kAtOnce * sizeof(double)];
  double values_[kAtOnce], residuals_[kAtOnce];
  slow_road::Element elements_[kAtOnce];
};

}  // namespace

GroupBound::GroupBound(const Run& run, const SumErrors& sums, const FinishedStatistics& group) {
  const NormPlan& plan = run.plan;
  GroupTraits traits = {.statistic = plan.statistic,
                        .counted = static_cast<double>(run.counted),
                        .is_wide = run.wide(),
                        .is_given = plan.given_statistics,
                        .has_eps = run.rule.eps > 0,
                        .all_counted = run.job.mask == nullptr && plan.statistic_reduce1 == plan.reduce1};
  // The largest magnitude is that of the high parts.
  const bool in_pairs = run.x.lo != nullptr && plan.statistic != Statistic::kMaxAbs;
  if (run.given_residual.data != nullptr) traits.elements.relative = in_pairs ? 2 * kPairUnit : kUnit;
  static_cast<BoundedGroup&>(*this) = BoundGroup(traits, sums, group);
}

ElementBound GroupBound::Of(const Run& run, double weight, double bias) const {
  if (!is_finite) return {-1, 0};
  if (RoundsWeights(run.job)) return {};
  const ElementTraits traits = {.is_wide = run.wide(),
                                .is_f64 = run.plan.dtype == DType::kF64,
                                .is_centred = run.plan.statistic == Statistic::kMeanVariance,
                                .casts_first = run.plan.cast_order == CastOrder::kCastThenAffine,
                                .bound_factor = run.nearest.bound_factor};
  const bool keeps_sign = run.parameters.bias == nullptr || (bias == 0 && std::signbit(bias));
  return BoundOfElement(*this, traits, weight, bias, keeps_sign);
}

bool HasNearestOutputs(const Run& run, const FinishedStatistics& group, const NormalisedBound& bound) {
  const double factor = run.nearest.bound_factor;
  const bool has_bound = bound.decides() && std::isfinite(factor) && group.inverse_std > 0;
  const bool in_f32 = run.plan.StatisticsDType() == DType::kF32 && run.job.moments == nullptr;
  if (!has_bound || !in_f32) return false;
  const double of_mean = (bound.beta / group.inverse_std + std::abs(group.mean) * 2 * kUnit) * factor;
  const double of_inverse = (bound.kappa + 2 * kUnit) * group.inverse_std * factor;
  return (run.job.mean == nullptr || RoundsToOneF32(group.mean, of_mean)) &&
         (run.job.inverse_std == nullptr || RoundsToOneF32(group.inverse_std, of_inverse));
}

NearestGroups::Group::~Group() {
  UndecidedCounts* const counts = reader.run->nearest.counts;
  if (counts == nullptr) return;
  const slow_road::Rungs& rungs = slow.rungs();
  const int64_t by_pairs = std::max<int64_t>(0, rungs.pairs - rungs.exact);
  if (by_pairs > 0) counts->by_pairs.fetch_add(by_pairs, std::memory_order_relaxed);
  if (rungs.exact > 0) counts->by_integers.fetch_add(rungs.exact, std::memory_order_relaxed);
}

void NearestGroups::Reader::operator()(absl::FunctionRef<void(const slow_road::Element*, int64_t)> take) const {
  const NormPlan& plan = run->plan;
  const uint8_t* const mask = run->job.mask;
  const Elements& residual = run->given_residual;
  ElementReader reader(take);
  const auto add = [&](int64_t index, int64_t n) {
    reader.Add(run->GivenX(index), residual.data == nullptr ? residual : residual.At(index), n);
  };
  for (int64_t r0 = 0; r0 < plan.reduce0; ++r0) {
    const int64_t index = run->IndexOf(k0, r0, k1, 0);
    // Rows have a byte of the mask for each element, columns one for each position.
    if (mask == nullptr || plan.pattern == Pattern::kColumns) {
      if (mask == nullptr || mask[r0] != 0) add(index, plan.statistic_reduce1);
      continue;
    }
    for (int64_t at = 0; at < plan.statistic_reduce1; ++at) {
      if (mask[r0 * plan.reduce1 + at] != 0) add(index + at, 1);
    }
  }
}

std::unique_ptr<NearestGroups::Group> NearestGroups::MakeGroup(int64_t k1) const {
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
  auto group = std::make_unique<Group>(formula, Reader{&run_, k0_, k1},
                                       run_.nearest.exact_first ? First::kExact : First::kPairs);
  if (SumsInPairs(run_)) group->slow.SumWith([this, k1] { return SumGroupInPairs(run_, k0_, k1); });
  return group;
}

slow_road::SlowGroup& NearestGroups::At(int64_t k1) {
  if (group_ == nullptr || group_->reader.k1 != k1) group_ = MakeGroup(k1);
  return group_->slow;
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
  const int64_t at = plan.affine_index == AffineIndex::kElement
                         ? r0 * plan.reduce1 + r1
                         : (run_.first_k1 + k1) * plan.channels_per_keep1 + r1 / plan.channel_run;
  const auto i = static_cast<size_t>(at);
  if (!host.weight.empty()) affine.weight = {host.weight[i], host.weight_rest.empty() ? 0 : host.weight_rest[i]};
  if (!host.bias.empty()) affine.bias = host.bias[i];
  return affine;
}

void NearestGroups::StoreGroup(int64_t k1) {
  const Job& job = run_.job;
  if (!GivenAreFinite(k1)) return;
  const int64_t group = k0_ * run_.plan.keep1 + k1;
  const DType dtype = run_.plan.StatisticsDType();
  const slow_road::Format format = slow_road::FormatOf(dtype);
  const auto store = [&](double value, void* to) {
    ConvertFromF64(&value, 1, dtype, static_cast<char*>(to) + group * SizeOf(dtype));
  };
  if (run_.nearest.counts != nullptr) run_.nearest.counts->groups.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard<std::mutex> lock(mutex_);
  slow_road::SlowGroup& slow = At(k1);
  if (job.mean != nullptr) store(slow.NearestMean(format), job.mean);
  if (job.inverse_std != nullptr) store(slow.NearestInverse(format), job.inverse_std);
  if (job.moments == nullptr || run_.plan.given_statistics) return;
  job.moments[group] = {static_cast<double>(run_.counted), slow.NearestMean(slow_road::FormatOf(DType::kF64)),
                        slow.NearestM2()};
}

void NearestGroups::StoreGroup(int64_t k1, const FinishedStatistics& result, const GroupBound& bound) {
  if (bound.is_finite && !HasNearestOutputs(run_, result, bound.bound)) StoreGroup(k1);
}

// A given variance of Inf and one that eps adds to beyond the largest f64 both have an 1 / D of 0 in f64.
bool NearestGroups::GivenAreFinite(int64_t k1) const {
  const Job& job = run_.job;
  if (!run_.plan.given_statistics) return true;
  return std::isfinite(job.given_variance[k1]) && (job.given_mean == nullptr || std::isfinite(job.given_mean[k1]));
}

void NearestGroups::DecideIn(slow_road::SlowGroup& group, const NearestPlace& place) const {
  const slow_road::Format format = slow_road::FormatOf(run_.plan.dtype);
  const slow_road::Affine affine = AffineOf(place.r0, place.k1, place.r1);
  const int64_t index = run_.IndexOf(k0_, place.r0, place.k1, place.r1);
  const slow_road::Element element = ElementAt(index, place.x);
  // `x` is the sum with the residual, which may overflow although neither is Inf.
  if (!std::isfinite(place.x) || !std::isfinite(element.x) || !std::isfinite(element.r)) return;
  if (!GivenAreFinite(place.k1)) return;
  const bool casts_first = run_.plan.cast_order == CastOrder::kCastThenAffine;
  double y = group.Nearest(format, element, casts_first ? slow_road::Affine() : affine);
  if (casts_first) y = slow_road::ApplyIn(format, y, affine);
  ConvertFromF64(&y, 1, run_.plan.dtype, static_cast<char*>(run_.y) + index * SizeOf(run_.plan.dtype));
}

void NearestGroups::Decide(int64_t r0, int64_t k1, int64_t r1, double x) {
  const std::lock_guard<std::mutex> lock(mutex_);
  DecideIn(At(k1), {r0, k1, r1, x});
}

void NearestGroups::Add(const NearestPlace& element) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto group = static_cast<size_t>(element.k1 - begin_);
  if (added_.size() == kMostAdded) is_crowded_[group] = true;
  if (!is_crowded_[group]) added_.push_back(element);
}

std::vector<int64_t> NearestGroups::GroupsAdded() const {
  std::vector<bool> is_asked = is_crowded_;
  for (const NearestPlace& place : added_) is_asked[static_cast<size_t>(place.k1 - begin_)] = true;
  std::vector<int64_t> groups;
  for (size_t group = 0; group < is_asked.size(); ++group) {
    if (is_asked[group]) groups.push_back(static_cast<int64_t>(group));
  }
  return groups;
}

void NearestGroups::DecideAdded(Again again, bool split, const slow_road::SumsAbout* sums) {
  std::erase_if(added_, [&](const NearestPlace& place) { return is_crowded_[static_cast<size_t>(place.k1 - begin_)]; });
  std::stable_sort(added_.begin(), added_.end(),
                   [](const NearestPlace& a, const NearestPlace& b) { return a.k1 < b.k1; });
  const auto decide = [&](int64_t begin, int64_t end) {
    auto place = std::partition_point(added_.begin(), added_.end(),
                                      [&](const NearestPlace& of) { return of.k1 < begin_ + begin; });
    for (int64_t k1 = begin_ + begin; k1 < begin_ + end; ++k1) {
      const bool is_crowded = is_crowded_[static_cast<size_t>(k1 - begin_)];
      if (!is_crowded && (place == added_.end() || place->k1 != k1)) continue;
      const std::unique_ptr<Group> group = MakeGroup(k1);
      if (sums != nullptr) group->slow.SumWith([sums, i = k1 - begin_] { return sums[i]; });
      if (is_crowded) again(k1, [&](const NearestPlace& of) { DecideIn(group->slow, of); });
      for (; place != added_.end() && place->k1 == k1; ++place) DecideIn(group->slow, *place);
    }
  };
  const bool is_none = added_.empty() && std::find(is_crowded_.begin(), is_crowded_.end(), true) == is_crowded_.end();
  if (is_none) return;
  const auto groups = static_cast<int64_t>(is_crowded_.size());
  if (split) {
    run_.pool.ParallelFor(groups, 1, decide);
  } else {
    decide(0, groups);
  }
}

}  // namespace normd::cpu
