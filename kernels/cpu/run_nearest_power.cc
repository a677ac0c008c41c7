// The walker of PowerNorm to the nearest value. Its divisor is that of two groups, the channels of a position and the
// positions of a channel, which no kernel bounds yet: the slow road decides every element, in pairs of f64 first.
// Costs 8 bytes of scratch an element, and about 0.2 us an element (f32, 2-core AMD EPYC, 2026-11-28).
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/cpu/run.h"
#include "kernels/slow_road/group.h"
#include "kernels/slow_road/quotient.h"

namespace normd::cpu {
namespace {

using slow_road::Element;
using slow_road::Formula;
using slow_road::SlowGroup;

// The channels of a position that are scaled together: their elements, and their mean square, exactly.
class ScalingGroup {
 public:
  // The `size` elements from index `begin` of the tensor on.
  ScalingGroup(const Run& run, int64_t begin, int64_t size)
      : elements_(static_cast<size_t>(size)), formula_(FormulaOf(run, size)), slow_(formula_, read_, FirstOf(run)) {
    std::vector<double> x(elements_.size()), r(elements_.size(), -0.0);
    ConvertToF64(run.GivenX(begin), size, x.data());
    if (run.given_residual.data != nullptr) ConvertToF64(run.given_residual.At(begin), size, r.data());
    bool has_nan = false;
    for (size_t i = 0; i < elements_.size(); ++i) {
      elements_[i] = {x[i], r[i]};
      is_finite_ = is_finite_ && std::isfinite(x[i]) && std::isfinite(r[i]);
      has_nan = has_nan || std::isnan(ValueBesideInf(run, elements_[i]));
    }
    is_infinite_ = !is_finite_ && !has_nan;
    has_divisor_ = is_finite_ && slow_.HasDivisor();
  }

  static SlowGroup::FirstRung FirstOf(const Run& run) {
    return run.nearest.exact_first ? SlowGroup::FirstRung::kExact : SlowGroup::FirstRung::kPairs;
  }

  // The elements divided by D are not NaN, Inf or 0 / 0.
  bool has_divisor() const { return has_divisor_; }
  // True for a finite element beside an Inf: divided by D it is 0.
  bool MakesZero(const Element& element) const {
    return is_infinite_ && std::isfinite(element.x) && std::isfinite(element.r);
  }
  // -1 or 1, or a 0 with the sign of the element.
  double SignOf(const Element& element) const {
    const int sign = slow_road::ExactValue(formula_, element).sign();
    return sign != 0 ? sign : std::copysign(0.0, element.x + formula_.scale * element.r);
  }
  // (element / D)^2, rounded to f64. NaN if no divisor gives it a number.
  double TermOf(const Element& element) {
    if (has_divisor_) return slow_.NearestSquare(element);
    return MakesZero(element) ? 0 : std::numeric_limits<double>::quiet_NaN();
  }
  const Element& operator[](int64_t i) const { return elements_[static_cast<size_t>(i)]; }
  SlowGroup& slow() { return slow_; }

 private:
  static Formula FormulaOf(const Run& run, int64_t size) {
    return {.statistic = Statistic::kMeanSquare,
            .rule = run.rule,
            .counted = size,
            .scale = run.given_residual.data == nullptr ? 1 : run.job.residual_scale};
  }

  // x + scale * r where one of them is Inf or NaN; else some finite number.
  static double ValueBesideInf(const Run& run, const Element& element) {
    if (std::isfinite(element.r)) return element.x;
    return element.x + run.job.residual_scale * element.r;
  }

  struct Read {
    const std::vector<Element>* elements;
    void operator()(absl::FunctionRef<void(const Element*, int64_t)> take) const {
      take(elements->data(), static_cast<int64_t>(elements->size()));
    }
  };

  std::vector<Element> elements_;
  const Read read_ = {&elements_};
  const Formula formula_;
  SlowGroup slow_;
  bool is_finite_ = true, is_infinite_ = false, has_divisor_ = true;
};

class NearestPowerNorm {
 public:
  explicit NearestPowerNorm(const Run& run)
      : run_(run),
        plan_(run.plan),
        channels_(plan_.keep1),
        size_(plan_.keep1 / plan_.power_groups),
        variances_(static_cast<size_t>(channels_), std::numeric_limits<double>::quiet_NaN()) {}

  void FindVariances() {
    if (plan_.given_statistics) {
      for (int64_t c = 0; c < channels_; ++c) variances_[static_cast<size_t>(c)] = run_.job.given_variance[c];
    } else {
      SumTerms();
    }
    for (int64_t c = 0; c < channels_; ++c) StoreInverse(c);
  }

  void WriteElements() const {
    ForEachScalingGroup([&](int64_t begin, ScalingGroup& group) {
      for (int64_t i = 0; i < size_; ++i) WriteElement(begin + i, i, &group);
    });
  }

 private:
  // The exact sum of numbers in [0, 2^62].
  using SumOfTerms = slow_road::ExactSum<-1088, 40>;

  template <typename Visit>
  void ForEachScalingGroup(Visit visit) const {
    run_.pool.ParallelFor(plan_.reduce0 * plan_.power_groups, run_.Grain(size_), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        ScalingGroup group(run_, i * size_, size_);
        visit(i * size_, group);
      }
    });
  }

  // v is the mean of terms that are each rounded once to f64, rounded once itself.
  void SumTerms() {
    std::vector<double> terms(static_cast<size_t>(plan_.reduce0 * channels_));
    ForEachScalingGroup([&](int64_t begin, ScalingGroup& group) {
      for (int64_t i = 0; i < size_; ++i) terms[static_cast<size_t>(begin + i)] = group.TermOf(group[i]);
    });
    run_.pool.ParallelFor(channels_, run_.Grain(plan_.reduce0), [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) SumChannel(c, terms);
    });
  }

  void SumChannel(int64_t c, const std::vector<double>& terms) {
    if (run_.counted == 0) return;
    SumOfTerms sum;
    for (int64_t p = 0; p < plan_.reduce0; ++p) {
      if (run_.job.mask != nullptr && run_.job.mask[p] == 0) continue;
      const double term = terms[static_cast<size_t>(p * channels_ + c)];
      if (std::isnan(term)) return;
      sum.Add(slow_road::Dyadic(term));
    }
    const slow_road::Dyadic total = sum.Value();
    const slow_road::Format f64 = slow_road::FormatOf(DType::kF64);
    const auto count = slow_road::Dyadic::Integer(static_cast<uint64_t>(run_.counted));
    variances_[static_cast<size_t>(c)] = slow_road::RoundQuotient(f64, total, count);
    if (run_.job.mean_squares != nullptr) run_.job.mean_squares[c] = variances_[static_cast<size_t>(c)];
    if (run_.job.moments == nullptr) return;
    run_.job.moments[c] = {static_cast<double>(run_.counted), 0, slow_road::RoundNumber(f64, total, 0)};
  }

  // 1 / sqrt(v + eps).
  void StoreInverse(int64_t c) const {
    const double variance = variances_[static_cast<size_t>(c)];
    if (run_.job.inverse_std == nullptr || !std::isfinite(variance)) return;
    const DType dtype = plan_.StatisticsDType();
    const auto nothing = [](absl::FunctionRef<void(const Element*, int64_t)> /*take*/) {};
    SlowGroup slow(
        {.statistic = Statistic::kMeanSquare, .rule = run_.rule, .is_given = true, .given_variance = variance},
        nothing);
    const double inverse = slow.NearestInverse(slow_road::FormatOf(dtype));
    ConvertFromF64(&inverse, 1, dtype, static_cast<char*>(run_.job.inverse_std) + c * SizeOf(dtype));
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

  // Writes y of the element at `index`, which is element i of its group. Leaves y alone where IEEE arithmetic has
  // decided it.
  void WriteElement(int64_t index, int64_t i, ScalingGroup* group) const {
    const int64_t c = index % channels_;
    const double variance = variances_[static_cast<size_t>(c)];
    const Element& element = (*group)[i];
    if (std::isnan(variance) || (!group->has_divisor() && !group->MakesZero(element))) return;
    const slow_road::Affine affine = AffineOf(c);
    const slow_road::Format format = slow_road::FormatOf(plan_.dtype);
    double y = 0;
    if (variance + run_.rule.eps == 0) {
      y = slow_road::ApplyIn(format, (group->has_divisor() ? group->SignOf(element) : 0) / 0.0, affine);
    } else if (!group->has_divisor() || std::isinf(variance)) {
      y = slow_road::ApplyIn(format, std::copysign(0.0, group->SignOf(element)), affine);
    } else {
      y = Nearest(format, element, variance, affine, &group->slow());
    }
    ConvertFromF64(&y, 1, plan_.dtype, static_cast<char*>(run_.y) + index * SizeOf(plan_.dtype));
  }

  double Nearest(const slow_road::Format& format, const Element& element, double variance,
                 const slow_road::Affine& affine, SlowGroup* slow) const {
    const bool casts_first = plan_.cast_order == CastOrder::kCastThenAffine;
    slow_road::Affine scaled = casts_first ? slow_road::Affine() : affine;
    scaled.variance = variance;
    const double y = slow->Nearest(format, element, scaled);
    return casts_first ? slow_road::ApplyIn(format, y, affine) : y;
  }

  const Run& run_;
  const NormPlan& plan_;
  const int64_t channels_, size_;
  std::vector<double> variances_;  // v of each channel; NaN: IEEE arithmetic says what its elements are
};

}  // namespace

void RunNearestPowerNorm(const Run& run) {
  Run by_kernels = run;
  by_kernels.to_nearest = false;
  RunPowerNorm(by_kernels);  // NaN, Inf and 0 / 0, which the rest leaves
  if (run.plan.elements == 0) return;
  NearestPowerNorm nearest(run);
  nearest.FindVariances();
  if (run.y != nullptr) nearest.WriteElements();
}

}  // namespace normd::cpu
