#include "tests/accuracy/nearest_share.h"

#include <vector>

#include "tests/support/judge_nearest.h"
#include "tests/support/nearest.h"

namespace normd::accuracy {
namespace {

class Counter {
 public:
  explicit Counter(const Case& c) : name_(c.Name()) {}

  void Count(Returned what, oracle::Type type, uint64_t bits, uint64_t nearest) {
    Share& share = shares_[what];
    ++share.of;
    if (oracle::IsNearest(type, bits, nearest)) return;
    if (share.wrong == 0) share.example = name_;
    ++share.wrong;
  }
  void CountF64(Returned what, double got, double nearest) {
    Count(what, oracle::Type::kF64, oracle::LoadBits(oracle::Type::kF64, &got, 0),
          oracle::LoadBits(oracle::Type::kF64, &nearest, 0));
  }
  void CountAll(Returned what, oracle::Type type, const std::string& got, const std::vector<uint64_t>& nearest) {
    for (size_t i = 0; i < nearest.size(); ++i) {
      Count(what, type, oracle::LoadBits(type, got.data(), static_cast<int64_t>(i)), nearest[i]);
    }
  }

  const Shares& shares() const { return shares_; }

 private:
  const std::string name_;
  Shares shares_;
};

}  // namespace

void Share::Add(const Share& other) {
  if (wrong == 0) example = other.example;
  wrong += other.wrong;
  of += other.of;
}

void Shares::Add(const Shares& other) {
  for (size_t i = 0; i < kReturnedCount; ++i) returned[i].Add(other.returned[i]);
}

Shares WronglyRounded(const Case& c, const CaseData& data, const Outputs& got) {
  const absl::StatusOr<NormPlan> plan = PlanOf(c);
  if (!plan.ok() || !HasNearest(c, *plan)) return {};
  const oracle::NearestResult nearest = oracle::Nearest(OracleSpec(c), OracleInput(c, data));
  const oracle::Type type = OracleType(c.dtype);
  Counter counter(c);
  counter.CountAll(Returned::kY, type, got.y, nearest.y);
  counter.CountAll(Returned::kH, type, got.h, nearest.h);
  if (nearest.y.empty()) return counter.shares();  // the statistics of nothing are not judged
  const oracle::Type of_statistics = type == oracle::Type::kF64 ? type : oracle::Type::kF32;
  std::vector<uint64_t> means, inverses;
  for (const oracle::NearestStatistics& group : nearest.groups) {
    means.push_back(group.mean);
    inverses.push_back(group.inverse);
  }
  counter.CountAll(Returned::kMean, of_statistics, got.mean, means);
  counter.CountAll(Returned::kInverseStd, of_statistics, got.inverse_std, inverses);
  for (size_t g = 0; g < got.moments.size(); ++g) {
    if (nearest.groups[g].count == 0) continue;
    counter.CountF64(Returned::kMoments, got.moments[g].mean, nearest.groups[g].moment_mean);
    counter.CountF64(Returned::kMoments, got.moments[g].m2, nearest.groups[g].moment_m2);
  }
  return counter.shares();
}

}  // namespace normd::accuracy
