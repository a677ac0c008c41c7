// A group of channels that PowerNorm scales together, on the slow road: its elements as they were given, and what is
// not decided by vector kernels.
// In the path: run_nearest_power.cc makes one for a position that has undecided elements, or elements that are not
// finite. Borrows the run. Threads: one at a time. Costs 16 bytes and a few ns an element.
#ifndef NORMD_KERNELS_CPU_NEAREST_POWER_GROUP_H_
#define NORMD_KERNELS_CPU_NEAREST_POWER_GROUP_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/cpu/nearest_power.h"
#include "kernels/cpu/run.h"
#include "kernels/slow_road/group.h"

namespace normd::cpu {

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
    if (run.given_residual.data == nullptr && size <= kMostInBlocks) {
      slow_.SumWith([&run, begin, size] { return SumInBlocks(run.GivenX(begin), size); });
    }
    has_divisor_ = is_finite_ && slow_.HasDivisor();
  }

  static slow_road::SlowGroup::FirstRung FirstOf(const Run& run) {
    return run.nearest.exact_first ? slow_road::SlowGroup::FirstRung::kExact : slow_road::SlowGroup::FirstRung::kPairs;
  }

  // The elements divided by D are not NaN, Inf or 0 / 0.
  bool has_divisor() const { return has_divisor_; }
  // True for a finite element beside an Inf: divided by D it is 0.
  bool MakesZero(const slow_road::Element& element) const {
    return is_infinite_ && std::isfinite(element.x) && std::isfinite(element.r);
  }
  // -1 or 1, or a 0 with the sign of the element.
  double SignOf(const slow_road::Element& element) const {
    const int sign = slow_road::ExactValue(formula_, element).sign();
    return sign != 0 ? sign : std::copysign(0.0, element.x + formula_.scale * element.r);
  }
  // (element / D)^2, rounded to f64. NaN if no divisor gives it a number.
  double TermOf(const slow_road::Element& element) {
    if (has_divisor_) return slow_.NearestSquare(element);
    return MakesZero(element) ? 0 : std::numeric_limits<double>::quiet_NaN();
  }
  const slow_road::Element& operator[](int64_t i) const { return elements_[static_cast<size_t>(i)]; }
  slow_road::SlowGroup& slow() { return slow_; }

 private:
  // A square takes part in less than 40 exact additions whose errors are added up, which is less than 1,700 v of
  // PowerBound; the sums of blocks are added in pairs.
  static constexpr int64_t kBlock = 128, kMostInBlocks = int64_t{1} << 15;
  static slow_road::SumsAbout SumInBlocks(const Elements& x, int64_t size) {
    slow_road::SumsAbout all;
    for (int64_t i = 0; i < size; i += kBlock) {
      all.sums.second = Add(all.sums.second, SumSquaresInPairs(x.At(i), std::min(kBlock, size - i)));
    }
    return all;
  }

  static slow_road::Formula FormulaOf(const Run& run, int64_t size) {
    return {.statistic = Statistic::kMeanSquare,
            .rule = run.rule,
            .counted = size,
            .scale = run.given_residual.data == nullptr ? 1 : run.job.residual_scale};
  }

  // x + scale * r where one of them is Inf or NaN; else some finite number.
  static double ValueBesideInf(const Run& run, const slow_road::Element& element) {
    if (std::isfinite(element.r)) return element.x;
    return element.x + run.job.residual_scale * element.r;
  }

  struct Read {
    const std::vector<slow_road::Element>* elements;
    void operator()(absl::FunctionRef<void(const slow_road::Element*, int64_t)> take) const {
      take(elements->data(), static_cast<int64_t>(elements->size()));
    }
  };

  std::vector<slow_road::Element> elements_;
  const Read read_ = {&elements_};
  const slow_road::Formula formula_;
  slow_road::SlowGroup slow_;
  bool is_finite_ = true, is_infinite_ = false, has_divisor_ = true;
};

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_NEAREST_POWER_GROUP_H_
