// What EXACT promises, over the case list and over the rows that are hardest to round; and the count itself, which
// must see one element that is one number of T away.
#include "tests/accuracy/nearest_share.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "tests/kernels/case_runs.h"
#include "tests/kernels/cases.h"
#include "tests/support/boundary_rows.h"

namespace normd::accuracy {
namespace {

void ExpectNoneWrong(const Shares& shares, const std::string& name) {
  for (size_t i = 0; i < kReturnedCount; ++i) {
    const Share& share = shares.returned[i];
    EXPECT_EQ(share.wrong, 0) << name << ": results of kind " << i << " of " << share.of << ", first " << share.example;
  }
}

TEST(NearestShareTest, SeesOneElementThatIsOneNumberAway) {
  const Case c = cases::With(cases::On(cases::Over({67}), {6, 67}), DType::kF32);
  const CaseData data = DataOf(c);
  Outputs got = Execute(*InlineCpuBackend(), c, data);
  const Shares before = WronglyRounded(c, data, got);
  EXPECT_EQ(before[Returned::kY].of, 6 * 67);
  EXPECT_EQ(before[Returned::kMean].of, 6);
  EXPECT_EQ(before[Returned::kMoments].of, 12);
  EXPECT_EQ(before[Returned::kY].wrong, 0);
  got.y[0] = static_cast<char>(got.y[0] ^ 1);
  const Shares after = WronglyRounded(c, data, got);
  EXPECT_EQ(after[Returned::kY].wrong, 1);
  EXPECT_EQ(after[Returned::kY].example, c.Name());
}

TEST(NearestShareTest, EveryResultOfTheCasesIsTheNearest) {
  const std::unique_ptr<Backend> backend = MakeCpuBackend({});
  Shares shares;
  for (const Case& c : cases::All()) {
    if (c.options.precision == Precision::kFast) continue;
    const CaseData data = DataOf(c);
    const absl::StatusOr<Outputs> got = RunCase(*backend, c, data);
    ASSERT_TRUE(got.ok()) << c.Name() << ": " << got.status();
    shares.Add(WronglyRounded(c, data, *got));
  }
  EXPECT_GT(shares[Returned::kY].of, 1000000);
  ExpectNoneWrong(shares, "all cases");
}

TEST(NearestShareTest, EveryBoundaryRowIsTheNearest) {
  const std::unique_ptr<Backend> backend = MakeCpuBackend({});
  for (const BoundaryRow& row : BoundaryRows(1)) {
    const absl::StatusOr<Outputs> got = RunCase(*backend, row.c, row.data);
    ASSERT_TRUE(got.ok()) << row.Name() << ": " << got.status();
    ExpectNoneWrong(WronglyRounded(row.c, row.data, *got), row.Name());
  }
}

}  // namespace
}  // namespace normd::accuracy
