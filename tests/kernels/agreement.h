// Everything that a job returned beside what the oracle computed, within the bound of the plan's precision.
#ifndef NORMD_TESTS_KERNELS_AGREEMENT_H_
#define NORMD_TESTS_KERNELS_AGREEMENT_H_

#include <string>

#include "kernels/plan.h"
#include "tests/support/case.h"
#include "tests/support/compare.h"
#include "tests/support/oracle.h"
#include "tests/support/run_case.h"

namespace normd::cases {

// "" or the first of y, h, MEAN, INV_STD and moments that is wrong, in words.
inline std::string Disagreement(const Case& c, const NormPlan& plan, const Outputs& got, const oracle::Result& want) {
  const std::string name = c.Name();
  const oracle::Type type = OracleType(c.dtype);
  const oracle::Bound bound = BoundOf(plan, c.dtype);
  const DType statistics = plan.StatisticsDType();
  const size_t bytes = want.groups.size() * static_cast<size_t>(SizeOf(statistics));
  if (got.mean.size() != bytes || got.inverse_std.size() != bytes) return name + ": statistics of another size";
  std::string wrong = oracle::CompareY(name, OracleSpec(c), bound, type, got.y.data(), want);
  if (wrong.empty()) wrong = oracle::CompareH(name, type, got.h.data(), want);
  // Statistics of nothing are not judged, but their room is there.
  if (wrong.empty() && !want.y.empty()) {
    wrong = oracle::CompareStatistics(name, BoundOf(plan, statistics), OracleType(statistics), got.mean.data(),
                                      got.inverse_std.data(), want);
  }
  if (!wrong.empty() || c.options.given_statistics) return wrong;
  if (got.moments.size() != want.groups.size()) return name + ": moments of another number of groups";
  for (size_t s = 0; s < want.groups.size() && wrong.empty(); ++s) {
    const Moment& m = got.moments[s];
    const std::string group = name + " moments[" + std::to_string(s) + "]";
    wrong = oracle::CompareMoment(group, bound, want.groups[s], m.count, m.mean, m.m2);
  }
  return wrong;
}

}  // namespace normd::cases

#endif  // NORMD_TESTS_KERNELS_AGREEMENT_H_
