// EXACT on a real GPU, without moments, which have sums of their own: the bytes of the CPU backend, which the exact
// oracle judges, and rows at the middles.
#include <vector>

#include "gmock/gmock.h"
#include "kernels/methods.h"
#include "tests/device/gpu/gpu_test.h"
#include "tests/device/shapes.h"
#include "tests/kernels/cases.h"
#include "tests/support/boundary_rows.h"
#include "tests/support/judge_nearest.h"
#include "tests/support/random.h"

namespace normd {
namespace {

class GpuNearestTest : public GpuTest {
 protected:
  void ExpectNearest(const std::vector<Case>& all) {
    for (const Case& c : all) {
      if (PlanOf(c)->precision != Precision::kExact) continue;
      const CaseData data = DataOf(c);
      EXPECT_EQ(DifferenceOf(Execute(*cuda_, c, data, 0, false), Execute(*cpu_, c, data, 0, false)), "") << c.Name();
    }
  }
};

TEST_F(GpuNearestTest, BytesOfEveryCaseAreThoseOfTheCpu) {
  for (const Method method : kAllMethods) ExpectNearest(cases::AllOf(method));
}

TEST_F(GpuNearestTest, BytesOfShapesAreThoseOfTheCpu) {
  for (const auto& all : {shapes::LongRows(), shapes::HardImages(), shapes::Residuals()}) ExpectNearest(all);
}

TEST_F(GpuNearestTest, DecidesElementsAtTheMiddles) {
  EXPECT_THAT(WrongRows(*cuda_, BoundaryRows(TestSeed())), testing::IsEmpty());
}

}  // namespace
}  // namespace normd
