#include "kernels/python/exact_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/plan.h"
#include "kernels/slow_road/group.h"
#include "kernels/slow_road/quotient.h"

namespace normd {
namespace {

using slow_road::Element;
using slow_road::SlowGroup;

constexpr slow_road::Format kF64 = slow_road::FormatOf(DType::kF64);

double NumberAt(const void* data, int64_t i) {
  double value;
  std::memcpy(&value, static_cast<const char*>(data) + i * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

// An element's place in the plan's geometry.
struct Place {
  int64_t k0, r0, k1, r1;
};

// The elements of a job in the plan's geometry.
class JobElements {
 public:
  explicit JobElements(const Job& job) : job_(job), plan_(*job.plan) {
    if (!plan_.permutation.empty()) FindOrder();
  }

  const Job& job() const { return job_; }
  const NormPlan& plan() const { return plan_; }
  Place PlaceOf(int64_t index) const {
    const int64_t i = to_plan_.empty() ? index : to_plan_[static_cast<size_t>(index)];
    const int64_t rows = i / plan_.reduce1, columns = rows / plan_.keep1;
    return {columns / plan_.reduce0, columns % plan_.reduce0, rows % plan_.keep1, i % plan_.reduce1};
  }
  Element At(const Place& at) const {
    const int64_t i = ((at.k0 * plan_.reduce0 + at.r0) * plan_.keep1 + at.k1) * plan_.reduce1 + at.r1;
    const int64_t index = from_plan_.empty() ? i : from_plan_[static_cast<size_t>(i)];
    return {NumberAt(job_.x, index), job_.residual.present() ? NumberAt(job_.residual.data, index) : -0.0};
  }
  bool Counts(const Place& at) const {
    if (job_.mask == nullptr) return true;
    return job_.mask[plan_.pattern == Pattern::kColumns ? at.r0 : at.r0 * plan_.reduce1 + at.r1] != 0;
  }

 private:
  // The permutation as indices, in both directions.
  void FindOrder() {
    const size_t rank = plan_.shape.size();
    Shape strides(rank, 1);
    for (size_t i = rank - 1; i > 0; --i) strides[i - 1] = strides[i] * plan_.shape[i];
    to_plan_.resize(static_cast<size_t>(plan_.elements));
    from_plan_.resize(to_plan_.size());
    for (int64_t i = 0; i < plan_.elements; ++i) {
      int64_t rest = i, index = 0;
      for (size_t at = rank; at-- > 0; rest /= plan_.shape[static_cast<size_t>(plan_.permutation[at])]) {
        const auto axis = static_cast<size_t>(plan_.permutation[at]);
        index += rest % plan_.shape[axis] * strides[axis];
      }
      from_plan_[static_cast<size_t>(i)] = index;
      to_plan_[static_cast<size_t>(index)] = i;
    }
  }

  const Job& job_;
  const NormPlan& plan_;
  std::vector<int64_t> to_plan_, from_plan_;  // empty: the two orders are one
};

// Whether the statistics of a group are given; PowerNorm's v is that of its channels.
bool IsGiven(const NormPlan& plan) { return plan.given_statistics && plan.power_groups == 0; }

// A statistics group, or the channels of a position that PowerNorm divides by their own root mean square.
class ExactGroup {
 public:
  ExactGroup(const JobElements& elements, const Place& of, slow_road::Formula formula)
      : counted_(Gather(elements, of)), slow_(Complete(std::move(formula), counted_), read_) {
    const auto finite = [](const Element& e) { return std::isfinite(e.x) && std::isfinite(e.r); };
    const bool of_given = IsGiven(elements.plan());
    const bool all = std::all_of(counted_.begin(), counted_.end(), finite);
    has_divisor_ = all && (of_given || !counted_.empty()) && std::isfinite(slow_.NearestInverse(kF64));
  }

  // Its elements are finite, and D is not 0.
  bool has_divisor() const { return has_divisor_; }
  SlowGroup& slow() { return slow_; }

 private:
  struct Read {
    const std::vector<Element>* elements;
    void operator()(absl::FunctionRef<void(const Element*, int64_t)> take) const {
      take(elements->data(), static_cast<int64_t>(elements->size()));
    }
  };

  static std::vector<Element> Gather(const JobElements& elements, const Place& of) {
    const NormPlan& plan = elements.plan();
    std::vector<Element> out;
    if (IsGiven(plan)) return out;
    if (plan.power_groups > 0) {
      const int64_t size = plan.keep1 / plan.power_groups, begin = of.k1 / size * size;
      for (int64_t c = begin; c < begin + size; ++c) out.push_back(elements.At({of.k0, of.r0, c, of.r1}));
      return out;
    }
    for (int64_t r0 = 0; r0 < plan.reduce0; ++r0) {
      for (int64_t r1 = 0; r1 < plan.statistic_reduce1; ++r1) {
        const Place at = {of.k0, r0, of.k1, r1};
        if (elements.Counts(at)) out.push_back(elements.At(at));
      }
    }
    return out;
  }

  static slow_road::Formula Complete(slow_road::Formula formula, const std::vector<Element>& counted) {
    formula.counted = static_cast<int64_t>(counted.size());
    return formula;
  }

  const std::vector<Element> counted_;
  const Read read_ = {&counted_};
  SlowGroup slow_;
  bool has_divisor_ = false;
};

class LowParts {
 public:
  LowParts(const Job& job, const HostParameters& parameters, const ExactElements& out)
      : elements_(job), plan_(*job.plan), parameters_(parameters), out_(out) {}

  void Find() {
    // Nothing can be added before such a quotient is rounded: RoundToNearest in kernels/slow_road/real.h.
    if (plan_.statistic == Statistic::kPowerSum) return;
    if (plan_.power_groups > 0) FindVariances();
    std::vector<std::pair<int64_t, int64_t>> order;  // a group and an element of it
    for (const int64_t index : out_.indices) order.emplace_back(GroupOf(elements_.PlaceOf(index)), index);
    std::sort(order.begin(), order.end());
    std::unique_ptr<ExactGroup> group;
    int64_t last = -1;
    for (const auto& [number, index] : order) {
      const Place at = elements_.PlaceOf(index);
      if (number != last) group = std::make_unique<ExactGroup>(elements_, at, FormulaAt(at.k1));
      last = number;
      if (group->has_divisor()) FindElement(group->slow(), at, index);
    }
  }

 private:
  int64_t GroupOf(const Place& at) const {
    if (plan_.power_groups == 0) return at.k0 * plan_.keep1 + at.k1;
    return at.r0 * plan_.power_groups + at.k1 / (plan_.keep1 / plan_.power_groups);
  }

  slow_road::Formula FormulaAt(int64_t k1) const {
    const Job& job = elements_.job();
    slow_road::Formula formula;
    formula.statistic = plan_.statistic;
    formula.rule = {plan_.eps, plan_.eps_mode, plan_.zero_norm_gives_zero, plan_.p};
    formula.scale = job.residual.present() ? job.residual_scale : 1;
    if (!IsGiven(plan_)) return formula;
    formula.is_given = true;
    formula.given_mean = job.given_mean == nullptr ? 0 : job.given_mean[k1];
    formula.given_variance = job.given_variance[k1];
    return formula;
  }

  slow_road::Affine AffineOf(const Place& at) const {
    const int64_t index = plan_.affine_index == AffineIndex::kElement
                              ? at.r0 * plan_.reduce1 + at.r1
                              : at.k1 * plan_.channels_per_keep1 + at.r1 / plan_.channel_run;
    const auto i = static_cast<size_t>(index);
    slow_road::Affine affine;
    if (!parameters_.weight.empty()) {
      affine.weight = {parameters_.weight[i], parameters_.weight_rest.empty() ? 0 : parameters_.weight_rest[i]};
    }
    if (!parameters_.bias.empty()) affine.bias = parameters_.bias[i];
    if (plan_.power_groups > 0) affine.variance = variances_[static_cast<size_t>(at.k1)];
    return affine;
  }

  // With the bias replaced by bias - high the formula gives what high leaves out. That difference is the sum of two f64
  // without error, of which the first enters the formula and the second is added to its result.
  void FindElement(SlowGroup& slow, const Place& at, int64_t index) const {
    const double high = out_.high[index];
    const Element element = elements_.At(at);
    slow_road::Affine affine = AffineOf(at);
    const double variance = affine.variance.value_or(1);
    if (!(variance + plan_.eps > 0)) return;
    for (const double number : {high, element.x, element.r, affine.weight.hi, affine.bias, variance}) {
      if (!std::isfinite(number)) return;
    }
    const DoublePair difference = TwoSum(affine.bias, -high);
    if (!std::isfinite(difference.hi)) return;
    affine.bias = difference.hi;
    const double rest = slow.Nearest(kF64, element, affine), low = rest + difference.lo;
    if (!std::isfinite(low)) return;  // the end of f64 is near
    out_.low[index] = low;
    out_.bound[index] = HalfUlp(rest) + HalfUlp(low);
  }

  // The largest error of rounding to `value`.
  static double HalfUlp(double value) {
    const int exponent = value == 0 ? -1022 : std::max(std::ilogb(value), -1022);
    return std::max(std::scalbn(1.0, exponent - 53), std::numeric_limits<double>::denorm_min());
  }

  // PowerNorm's v: given, or the mean of terms that are each rounded once to f64, rounded once itself.
  void FindVariances() {
    const Job& job = elements_.job();
    variances_.assign(static_cast<size_t>(plan_.keep1), std::numeric_limits<double>::quiet_NaN());
    if (plan_.given_statistics) {
      std::copy_n(job.given_variance, plan_.keep1, variances_.begin());
      return;
    }
    std::vector<SumOfTerms> sums(variances_.size());
    std::vector<bool> has_sum(variances_.size(), true);
    int64_t counted = 0;
    for (int64_t r0 = 0; r0 < plan_.reduce0; ++r0) {
      if (!elements_.Counts({0, r0, 0, 0})) continue;
      ++counted;
      AddTerms(r0, &sums, &has_sum);
    }
    for (size_t c = 0; c < sums.size() && counted > 0; ++c) {
      const auto count = slow_road::Dyadic::Integer(static_cast<uint64_t>(counted));
      if (has_sum[c]) variances_[c] = slow_road::RoundQuotient(kF64, sums[c].Value(), count);
    }
  }

  // The exact sum of numbers in [0, 2^62].
  using SumOfTerms = slow_road::ExactSum<-1088, 40>;

  void AddTerms(int64_t r0, std::vector<SumOfTerms>* sums, std::vector<bool>* has_sum) const {
    const int64_t size = plan_.keep1 / plan_.power_groups;
    for (int64_t begin = 0; begin < plan_.keep1; begin += size) {
      ExactGroup group(elements_, {0, r0, begin, 0}, FormulaAt(begin));
      for (int64_t c = begin; c < begin + size; ++c) {
        const auto i = static_cast<size_t>(c);
        has_sum->at(i) = has_sum->at(i) && group.has_divisor();
        if (!has_sum->at(i)) continue;
        sums->at(i).Add(slow_road::Dyadic(group.slow().NearestSquare(elements_.At({0, r0, c, 0}))));
      }
    }
  }

  const JobElements elements_;
  const NormPlan& plan_;
  const HostParameters& parameters_;
  const ExactElements& out_;
  std::vector<double> variances_;  // PowerNorm's v of each channel; NaN: there is none
};

}  // namespace

void FindLowParts(const Job& job, const HostParameters& parameters, const ExactElements& elements) {
  LowParts(job, parameters, elements).Find();
}

}  // namespace normd
