#include "tests/accuracy/beside_slow_road.h"

#include <gtest/gtest.h>

namespace normd::accuracy {
namespace {

constexpr int64_t kFewElements = 100'000;

TEST(BesideSlowRoadTest, NothingDiffers) {
  for (const Form& form : FormsBesideSlowRoad()) {
    SCOPED_TRACE(form.c.Name());
    const Differences differences = BesideSlowRoad(form.c, kFewElements, {});
    EXPECT_GE(differences.of, kFewElements);
    EXPECT_EQ(differences.different, 0);
  }
}

// Of f16, of which one element in ten thousand is wrongly rounded without bounds.
TEST(BesideSlowRoadTest, WithoutBoundsElementsDiffer) {
  const std::vector<Form> forms = FormsBesideSlowRoad();
  int tried = 0;
  for (const Form& form : forms) {
    if (form.c.dtype != DType::kF16 || form.title != "LayerNorm w b") continue;
    ++tried;
    EXPECT_GT(
        BesideSlowRoad(form.c, 20 * kFewElements, {.of_kernels = 0, .of_slow_road = BoundFactors::kWide}).different, 0);
  }
  EXPECT_EQ(tried, 1);
}

}  // namespace
}  // namespace normd::accuracy
