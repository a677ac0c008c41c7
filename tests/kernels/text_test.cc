#include "kernels/base/strings.h"

#include <cstdint>
#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace normd {
namespace {

TEST(NumberText, IsTheShortestThatReadsBack) {
  EXPECT_EQ(NumberText(0.1), "0.1");
  EXPECT_EQ(NumberText(0.1f), "0.1");
  EXPECT_EQ(NumberText(0.1 + 0.2), "0.30000000000000004");
  EXPECT_EQ(NumberText(-0.0), "-0");
  EXPECT_EQ(NumberText(1e300), "1e+300");
  EXPECT_EQ(NumberText(-std::numeric_limits<double>::denorm_min()), "-5e-324");
  EXPECT_EQ(NumberText(-1.7976931348623157e308), "-1.7976931348623157e+308");
  EXPECT_EQ(NumberText(std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(NumberText(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(NumberText(std::numeric_limits<int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(NumberText(std::numeric_limits<uint64_t>::max()), "18446744073709551615");
}

TEST(Concat, PutsStringsAndNumbersTogether) {
  const std::string_view view = "view";
  EXPECT_EQ(Concat("a", std::string("b"), view, 3, -4, 0.5), "abview3-40.5");
}

}  // namespace
}  // namespace normd
