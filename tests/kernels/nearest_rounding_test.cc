// y of EXACT is the nearest value, by whichever rung of the ladder decides an element.
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "kernels/methods.h"
#include "tests/kernels/cases.h"
#include "tests/support/boundary_rows.h"
#include "tests/support/case.h"
#include "tests/support/constants.h"
#include "tests/support/judge_nearest.h"
#include "tests/support/nearest.h"
#include "tests/support/oracle.h"
#include "tests/support/random.h"
#include "tests/support/run_case.h"

namespace normd {
namespace {

std::unique_ptr<Backend> NearestBackend(double bound_factor, bool exact_first) {
  return MakeCpuBackend({.nearest = {.bound_factor = bound_factor, .exact_first = exact_first}});
}

class NearestRoundingTest : public testing::TestWithParam<Method> {
 protected:
  // The cases that the kernels can round to nearest, with at most `most` elements, which the slow road decides in time.
  static std::vector<Case> Cases(int64_t most) {
    std::vector<Case> chosen;
    for (const Case& c : cases::AllOf(GetParam())) {
      const absl::StatusOr<NormPlan> plan = PlanOf(c);
      if (plan->precision == Precision::kExact && HasNearest(c, *plan) && plan->elements <= most) {
        chosen.push_back(c);
      }
    }
    return chosen;
  }
};

TEST_P(NearestRoundingTest, GivesTheNearestValueOfEveryCase) {
  const std::unique_ptr<Backend> backend = NearestBackend(1, false);
  size_t elements = 0;
  for (const Case& c : Cases(20'000)) {
    const CaseData data = MakeData(c, *PlanOf(c), TestSeed());
    const absl::StatusOr<Outputs> got = RunCase(*backend, c, data);
    ASSERT_TRUE(got.ok()) << c.Name();
    const oracle::NearestResult want = oracle::Nearest(OracleSpec(c), OracleInput(c, data));
    EXPECT_EQ(NotNearest(OracleType(c.dtype), got->y, want.y), "") << c.Name();
    EXPECT_EQ(NotNearest(OracleType(c.dtype), got->h, want.h), "") << c.Name() << " h";
    EXPECT_EQ(NotNearest(c, *got, want.groups), "") << c.Name();
    elements += want.y.size();
  }
  EXPECT_GT(elements, 10'000u);
}

// A bound that is far too large, or that sends every element to the pairs or to the exact integers, costs time and
// changes no byte.
TEST_P(NearestRoundingTest, GivesTheSameBytesWhicheverRungDecides) {
  const std::unique_ptr<Backend> usual = NearestBackend(1, false);
  const std::unique_ptr<Backend> others[] = {NearestBackend(1e6, false), NearestBackend(kInf, false),
                                             NearestBackend(kInf, true)};
  const std::vector<Case> all = Cases(2'000);
  for (size_t i = 0; i < all.size(); i += 10) {
    const Case& c = all[i];
    const CaseData data = MakeData(c, *PlanOf(c), TestSeed());
    const absl::StatusOr<Outputs> want = RunCase(*usual, c, data);
    ASSERT_TRUE(want.ok()) << c.Name();
    for (const std::unique_ptr<Backend>& other : others) {
      const absl::StatusOr<Outputs> got = RunCase(*other, c, data);
      ASSERT_TRUE(got.ok()) << c.Name();
      EXPECT_EQ(DifferenceOf(*want, *got), "") << c.Name();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, NearestRoundingTest, testing::ValuesIn(kAllMethods),
                         [](const auto& method) { return std::string(Info(method.param).name); });

const std::vector<BoundaryRow>& RowsAtMiddles() {
  static const auto* const rows = new std::vector<BoundaryRow>(BoundaryRows(TestSeed()));  // takes seconds
  return *rows;
}

// How many rows at the middles a backend gets wrong.
std::vector<std::string> WrongRows(double bound_factor) {
  return WrongRows(*NearestBackend(bound_factor, false), RowsAtMiddles());
}

TEST(NearestBoundaryTest, DecidesElementsAtTheMiddles) { EXPECT_THAT(WrongRows(1), testing::IsEmpty()); }

// Some row of this dtype, by a kernel of this kind: of a method's rows, of columns or of channels.
auto HasRow(const std::string& dtype, const std::string& kind) {
  const std::string first = kind == "last" || kind == "first" ? "/" + dtype + "/" : kind + "/" + dtype + "/";
  const std::string second = kind == "last" || kind == "first" ? "/" + kind + "/" : "";
  return testing::Contains(testing::AllOf(testing::HasSubstr(first), testing::HasSubstr(second)));
}

// The same rows with a bound that is too small: those of every kind of kernel are worth something. Those that are
// summed in f64 about a mean add up roundings that never all go one way. In pairs of f64, each operation counts as four
// times what it errs at most, beside the number of additions, so that 64 times is too little to be seen there. Rows of
// 16-bit types have elements of their own in nearest_rows_test.cc: here a vector without a middle is rare. For columns
// and channels of these see nearest_columns_test.cc and folded_pairs_test.cc.
TEST(NearestBoundaryTest, FindsABoundThatIsTooSmallOfEveryKindOfKernel) {
  const std::vector<std::string> narrow = WrongRows(0x1p-6);
  for (const std::string kind : {"last", "first"}) EXPECT_THAT(narrow, HasRow("f32", kind));
  EXPECT_THAT(narrow, HasRow("f32", "rms_norm"));
  EXPECT_THAT(WrongRows(0x1p-8), HasRow("f32", "layer_norm"));
  const std::vector<std::string> wide = WrongRows(0x1p-10);
  for (const std::string kind : {"last", "first", "rms_norm"}) EXPECT_THAT(wide, HasRow("f64", kind));
  EXPECT_THAT(WrongRows(0x1p-14), HasRow("f64", "layer_norm"));
}

// A row of f64 by RMSNorm, its bits beside the oracle's.
void ExpectNearestRow(const std::vector<double>& x, const std::vector<double>& w, double residual_scale = 1,
                      const std::vector<double>& residual = {}) {
  Case c;
  c.spec.attributes = RmsNormSpec();
  c.shape = {1, static_cast<int64_t>(x.size())};
  c.dtype = DType::kF64;
  const auto bytes = [](const std::vector<double>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
  };
  CaseData data;
  data.x = bytes(x);
  if (!w.empty()) c.weight = DType::kF64;
  data.weight = bytes(w);
  if (!residual.empty()) c.residual = {DType::kF64, residual_scale, ResidualRounding::kKeepWide};
  data.residual = bytes(residual);
  const oracle::NearestResult want = oracle::Nearest(OracleSpec(c), OracleInput(c, data));
  for (const bool slowly : {false, true}) {
    const std::unique_ptr<Backend> backend = NearestBackend(slowly ? kInf : 1, false);
    EXPECT_EQ(NotNearest(oracle::Type::kF64, RunCase(*backend, c, data)->y, want.y), "") << (slowly ? "in pairs" : "");
  }
}

// Elements whose low parts are lost, because they, their scaled values or n are near the end of the range.
TEST(NearestEdgeTest, KnowsWhatTinyElementsLose) {
  std::vector<double> x = {0x1p+401};
  for (int i = 1; i < 64; ++i) x.push_back((1 + i * 0x1.37p-7) * 0x1p-470);
  ExpectNearestRow(x, {});
  ExpectNearestRow({1, 0x1.5eb851eb851ecp-1050, 2, 3}, {1, 0x1p+900, 1, 1});
  ExpectNearestRow({1, 0, 0, 0}, {1, 0x1p+500, 0x1p+500, 0x1p+500}, 0x1.8p-500,
                   {0, 0x1.123456789abcdp-540, 0x1.3p-540, 0x1.fedcba9876543p-540});
}

// An infinite weight is no reason to trust the elements beside it.
TEST(NearestEdgeTest, BoundsElementsBesideAnInfiniteWeight) {
  const std::unique_ptr<Backend> backend = NearestBackend(1, false);
  size_t tried = 0;
  for (const BoundaryRow& row : RowsAtMiddles()) {
    if (row.c.spec.method() != Method::kRmsNorm || row.c.weight != DType::kF32) continue;
    BoundaryRow changed = row;
    const float infinity = std::numeric_limits<float>::infinity();
    std::memcpy(changed.data.weight.data(), &infinity, sizeof(infinity));
    const oracle::NearestResult want = oracle::Nearest(OracleSpec(row.c), OracleInput(row.c, changed.data));
    const std::string y = RunCase(*backend, row.c, changed.data)->y;
    EXPECT_EQ(NotNearest(OracleType(row.c.dtype), y, want.y), "") << row.Name();
    ++tried;
  }
  EXPECT_GT(tried, 0u);
}

}  // namespace
}  // namespace normd
