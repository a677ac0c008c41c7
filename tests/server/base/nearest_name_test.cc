#include "server/base/nearest_name.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace normd {
namespace {

const std::vector<std::string_view> kNames = {"queues", "data_dir", "max_sessions", "max_regions"};

TEST(NearestName, FindsTheNearestName) {
  EXPECT_EQ(NearestName("queue", kNames), "queues");
  EXPECT_EQ(NearestName("quueues", kNames), "queues");
  EXPECT_EQ(NearestName("datadir", kNames), "data_dir");
  EXPECT_EQ(NearestName("max_session", kNames), "max_sessions");
  EXPECT_EQ(NearestName("max_regoins", kNames), "max_regions");
}

TEST(NearestName, FindsNothingThatIsFarOff) {
  EXPECT_EQ(NearestName("bogus", kNames), "");
  EXPECT_EQ(NearestName("", kNames), "");
  EXPECT_EQ(NearestName(std::string(100000, 'q'), kNames), "");
  EXPECT_EQ(NearestName("queue", {}), "");
}

}  // namespace
}  // namespace normd
