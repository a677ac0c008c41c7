// semantics of numbers: no conditioning and no magnitude breaks the bound.
#include <memory>
#include <string>

#include "tests/accuracy/judge.h"
#include "tests/accuracy/sweep.h"

namespace normd::accuracy {
namespace {

class SweepTest : public ArithmeticTest {
 protected:
  // Judges every sample by the oracle. How many groups FAST promised nothing of.
  void JudgeAll(const std::vector<Sample>& samples) {
    ASSERT_FALSE(samples.empty());
    const std::unique_ptr<Backend> backend = MakeCpuBackend({});
    int judged = 0, groups = 0, promised = 0;
    for (const Sample& sample : samples) {
      Case c = sample.c;
      if (fast() && !cases::HasFast(c)) continue;
      c.options.precision = precision();
      const absl::StatusOr<NormPlan> plan = PlanOf(c);
      ASSERT_TRUE(plan.ok()) << plan.status();
      const absl::StatusOr<Outputs> got = RunCase(*backend, c, sample.data);
      ASSERT_TRUE(got.ok()) << got.status();
      const oracle::Result want = oracle::Compute(OracleSpec(c), OracleInput(c, sample.data));
      EXPECT_EQ(cases::Disagreement(c, *plan, *got, want), "") << sample.name;
      ++judged;
      for (const oracle::GroupStatistics& group : want.groups) {
        ++groups;
        promised += oracle::Promised(BoundOf(*plan, c.dtype), group);
      }
    }
    EXPECT_GT(judged, 20);
    EXPECT_EQ(promised, groups) << "made to be within the promise";
  }
};

TEST_P(SweepTest, ConditioningBreaksNothing) { JudgeAll(ConditioningSweep(dtype())); }

TEST_P(SweepTest, MagnitudeBreaksNothing) { JudgeAll(MagnitudeSweep(dtype())); }

INSTANTIATE_TEST_SUITE_P(Arithmetics, SweepTest, testing::ValuesIn(kArithmetics), ArithmeticName);

}  // namespace
}  // namespace normd::accuracy
