// What a CUDA device returned beside what the CPU backend returns. Under EXACT every byte is the CPU's. So it is under
// FAST wherever both sum in f32; groups that f32 does not serve are nearest values on the CPU
// (kernels/cpu/beyond_fast.h) and sums in f64 in CUDA, and are held to FAST's bound. Includes no CUDA.
// REQUIRES: inside a GoogleTest test.
#ifndef NORMD_TESTS_DEVICE_BESIDE_CPU_H_
#define NORMD_TESTS_DEVICE_BESIDE_CPU_H_

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "tests/kernels/agreement.h"
#include "tests/kernels/case_runs.h"
#include "tests/support/constants.h"
#include "tests/support/oracle.h"

namespace normd {

// Whether the CPU backend takes any element of a case to the nearest value, as its own count says when no kernel can
// decide one.
inline bool GivesAnyNearest(const Case& c, const CaseData& data) {
  UndecidedCounts counts;
  const std::unique_ptr<Backend> counting =
      MakeCpuBackend({.threads = 1, .nearest = {.bound_factor = kInf, .counts = &counts}});
  Execute(*counting, c, data);
  return counts.by_pairs + counts.by_integers > 0;
}

// The outputs of one case on the CPU under FAST and under EXACT, group by group.
class FastBesideExact {
 public:
  // Borrows all of them. `formula` says which group an element is of.
  FastBesideExact(const Case& c, const Outputs& fast, const Outputs& exact, const oracle::Result& formula)
      : size_(static_cast<size_t>(SizeOf(c.dtype))), fast_(fast), formula_(formula) {
    for (size_t group = 0; group < formula.groups.size(); ++group) {
      is_nearest_.push_back(Same(fast.mean, exact.mean, group, sizeof(float)) &&
                            Same(fast.inverse_std, exact.inverse_std, group, sizeof(float)) &&
                            (fast.moments.empty() || IsNear(fast.moments[group].m2, exact.moments[group].m2)));
    }
    for (size_t i = 0; i < formula.y.size(); ++i) {
      if (!Same(fast.y, exact.y, i, size_)) is_nearest_[GroupOf(i)] = false;
    }
  }

  // "" or the first byte of `got` that is not FAST's on the CPU, outside the groups that are nearest values there.
  std::string DifferenceInF32(const Outputs& got) const {
    if (got.y.size() != fast_.y.size() || got.mean.size() != fast_.mean.size()) return "another size";
    if (got.h != fast_.h) return "h";
    for (size_t i = 0; i < formula_.y.size(); ++i) {
      if (!is_nearest_[GroupOf(i)] && !Same(got.y, fast_.y, i, size_)) return "y in f32: element " + std::to_string(i);
    }
    for (size_t group = 0; group < is_nearest_.size(); ++group) {
      const bool same = Same(got.mean, fast_.mean, group, sizeof(float)) &&
                        Same(got.inverse_std, fast_.inverse_std, group, sizeof(float));
      if (!is_nearest_[group] && !same) return "statistics in f32: group " + std::to_string(group);
    }
    return "";
  }

 private:
  static bool Same(const std::string& a, const std::string& b, size_t i, size_t size) {
    return a.compare(i * size, size, b, i * size, size) == 0;
  }
  // Whether neither was summed in f32, which leaves far larger errors.
  static bool IsNear(double a, double b) {
    return std::abs(a - b) <= 0x1p-40 * b || a == b || (std::isnan(a) && std::isnan(b));
  }
  size_t GroupOf(size_t i) const { return formula_.group.empty() ? 0 : formula_.group[i]; }

  const size_t size_;
  const Outputs& fast_;
  const oracle::Result& formula_;
  std::vector<bool> is_nearest_;  // by group
};

// "" or how `got`, which a CUDA device made of `data`, differs from what it has to be. `moments`: whether the job had
// them. `cpu` is a CPU backend.
inline std::string WrongBesideCpu(Backend& cpu, const Case& c, const CaseData& data, const Outputs& got,
                                  bool moments = true) {
  const std::string difference = DifferenceOf(got, Execute(cpu, c, data, 0, moments));
  const absl::StatusOr<NormPlan> plan = PlanOf(c);
  if (difference.empty() || !plan.ok() || plan->precision != Precision::kFast) return difference;
  if (!GivesAnyNearest(c, data)) return difference;
  Case as_exact = c;
  as_exact.options.precision = Precision::kExact;
  const Outputs fast = Execute(cpu, c, data), exact = Execute(cpu, as_exact, data);
  const oracle::Result formula = oracle::Compute(OracleSpec(c), OracleInput(c, data));
  const std::string in_f32 = FastBesideExact(c, fast, exact, formula).DifferenceInF32(got);
  if (!in_f32.empty()) return in_f32 + ", " + difference;
  Outputs judged = got;
  if (!moments) judged.moments = fast.moments;
  return cases::Disagreement(c, *plan, judged, formula);
}

}  // namespace normd

#endif  // NORMD_TESTS_DEVICE_BESIDE_CPU_H_
