// The boundary rows are what they say: the exact oracle counts their elements next to a middle.
#include "tests/support/boundary_rows.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/nearest.h"
#include "tests/support/random.h"
#include "tests/support/run_case.h"

namespace normd {
namespace {

int64_t CountNear(const BoundaryRow& row, int log2_ulp) {
  const std::vector<bool> near = oracle::NearMiddle(OracleSpec(row.c), OracleInput(row.c, row.data), log2_ulp);
  return std::count(near.begin(), near.end(), true);
}

TEST(BoundaryRowsTest, EveryRowHasAHundredElementsNextToAMiddle) {
  std::set<std::string> names;
  uint64_t hash = kFnvStart;
  for (const BoundaryRow& row : BoundaryRows(1)) {
    EXPECT_TRUE(names.insert(row.Name()).second) << row.Name() << " twice";
    EXPECT_TRUE(PlanOf(row.c).ok()) << row.Name() << ": " << PlanOf(row.c).status();
    EXPECT_GE(CountNear(row, row.log2_ulp), kBoundaryElements) << row.Name();
    // Nearer still there are fewer, so the count is one of distances.
    EXPECT_LT(CountNear(row, row.log2_ulp - 30), kBoundaryElements) << row.Name();
    for (const std::string* bytes : {&row.data.x, &row.data.weight, &row.data.bias}) hash = Fnv1a(*bytes, hash);
  }
  EXPECT_EQ(names.size(), 146u);
  // The same bytes on every machine. A change of how rows are made changes this number, and only that does.
  EXPECT_EQ(hash, 11341235194195097212u);
}

}  // namespace
}  // namespace normd
