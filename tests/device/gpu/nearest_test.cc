// EXACT to the nearest value on a real GPU: the bytes of the CPU backend with the same options, which the exact oracle
// judges, and rows at the middles.
#include <memory>
#include <string>

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

constexpr NearestOptions kNearest = {};

class GpuNearestTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (cuda_ == nullptr) return;
    absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCudaBackend({.nearest = kNearest});
    ASSERT_TRUE(backend.ok()) << backend.status();
    nearest_ = *std::move(backend);
  }
  void ExpectNearest(const std::vector<Case>& all) {
    for (const Case& c : all) {
      const NormPlan plan = *PlanOf(c);
      if (plan.precision != Precision::kExact || !HasNearest(c, plan)) continue;
      const CaseData data = DataOf(c);
      for (const bool moments : {false, true}) {
        EXPECT_EQ(DifferenceOf(Execute(*nearest_, c, data, 0, moments), Execute(*nearest_cpu_, c, data, 0, moments)),
                  "")
            << c.Name();
      }
    }
  }

  const std::unique_ptr<Backend> nearest_cpu_ = MakeCpuBackend({.nearest = kNearest});
  std::unique_ptr<Backend> nearest_;  // null: skipped
};

TEST_F(GpuNearestTest, BytesOfEveryCaseAreThoseOfTheCpu) {
  for (const Method method : kAllMethods) ExpectNearest(cases::AllOf(method));
}

TEST_F(GpuNearestTest, BytesOfShapesAreThoseOfTheCpu) {
  for (const auto& all : {shapes::LongRows(), shapes::HardImages(), shapes::Residuals()}) ExpectNearest(all);
}

TEST_F(GpuNearestTest, DecidesElementsAtTheMiddles) {
  EXPECT_THAT(WrongRows(*nearest_, BoundaryRows(TestSeed())), testing::IsEmpty());
}

}  // namespace
}  // namespace normd
