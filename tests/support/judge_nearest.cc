#include "tests/support/judge_nearest.h"

#include <cmath>
#include <cstring>
#include <sstream>

#include "gtest/gtest.h"

namespace normd {

std::string NotNearest(oracle::Type type, const std::string& y, const std::vector<uint64_t>& want) {
  const size_t bytes = want.empty() ? 0 : y.size() / want.size();
  for (size_t i = 0; i < want.size(); ++i) {
    uint64_t got = 0;
    std::memcpy(&got, y.data() + i * bytes, bytes);
    if (oracle::IsNearest(type, got, want[i])) continue;
    std::ostringstream wrong;
    wrong << "element " << i << ": bits " << std::hex << got << " instead of " << want[i];
    return wrong.str();
  }
  return "";
}

std::string NotNearest(const Case& c, const Outputs& got, const std::vector<oracle::NearestStatistics>& want) {
  std::vector<uint64_t> mean, inverse;
  for (const oracle::NearestStatistics& group : want) {
    mean.push_back(group.mean);
    inverse.push_back(group.inverse);
  }
  const oracle::Type type = c.dtype == DType::kF64 ? oracle::Type::kF64 : oracle::Type::kF32;
  std::string wrong = NotNearest(type, got.mean, mean);
  if (!wrong.empty()) return "mean, " + wrong;
  wrong = NotNearest(type, got.inverse_std, inverse);
  if (!wrong.empty()) return "inverse_std, " + wrong;
  const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  for (size_t i = 0; i < got.moments.size(); ++i) {
    const Moment& moment = got.moments[i];
    if (want[i].count == 0) continue;  // the moments of nothing are 0
    if (same(moment.mean, want[i].moment_mean) && same(moment.m2, want[i].moment_m2)) continue;
    std::ostringstream message;
    message << std::hexfloat << "moments[" << i << "]: " << moment.mean << ", " << moment.m2 << " instead of "
            << want[i].moment_mean << ", " << want[i].moment_m2;
    return message.str();
  }
  return "";
}

bool HasNearest(const Case& c, const NormPlan& plan) {
  if (plan.statistic != Statistic::kPowerSum) return true;
  const bool keeps = c.residual.has_value() && c.residual->rounding == ResidualRounding::kKeepWide;
  const bool is_f64 = c.dtype == DType::kF64 || (keeps && c.residual->dtype == DType::kF64);
  const double most = keeps ? (is_f64 ? 3 : 5) : is_f64 ? 6 : 10;
  return plan.p == std::floor(plan.p) && plan.p <= most;
}

std::vector<std::string> WrongRows(Backend& backend, const std::vector<BoundaryRow>& rows) {
  std::vector<std::string> wrong;
  for (const BoundaryRow& row : rows) {
    const absl::StatusOr<Outputs> got = RunCase(backend, row.c, row.data);
    EXPECT_TRUE(got.ok()) << row.Name();
    if (!got.ok()) continue;
    const oracle::NearestResult want = oracle::Nearest(OracleSpec(row.c), OracleInput(row.c, row.data));
    const std::string first = NotNearest(OracleType(row.c.dtype), got->y, want.y);
    if (!first.empty()) wrong.push_back(row.Name() + ": " + first);
  }
  return wrong;
}

}  // namespace normd
