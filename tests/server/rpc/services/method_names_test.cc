#include "server/rpc/services/method_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace normd::rpc {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

std::vector<Route> AllRoutes() {
  std::vector<Route> routes;
  for (const std::string& method : CountedMethods()) routes.push_back({.path = "/normd.v1." + method});
  for (const char* method : {"Check", "Watch"}) routes.push_back({.path = MethodPath("grpc.health.v1.Health", method)});
  return routes;
}

TEST(MethodNames, AreThoseOfTheProtoFiles) {
  EXPECT_THAT(CountedMethods(), Contains("Normalizer/NormalizeStream"));
  EXPECT_THAT(CountedMethods(), Contains("Sessions/CommitMoments"));
  EXPECT_EQ(MethodPath("normd.v1.Normalizer", "Normalize"), "/normd.v1.Normalizer/Normalize");
}

TEST(MethodNames, RoutesOfAllMethodsAreAccepted) { EXPECT_EQ(CheckRoutes(AllRoutes()), absl::OkStatus()); }

TEST(MethodNames, ARouteThatIsMissingUnknownOrThereTwiceIsNamed) {
  std::vector<Route> missing = AllRoutes();
  const std::string path = missing.front().path;
  missing.erase(missing.begin());
  EXPECT_THAT(std::string(CheckRoutes(missing).message()), HasSubstr(path + " has no route"));
  std::vector<Route> unknown = AllRoutes();
  unknown.push_back({.path = "/normd.v1.Normalizer/Denormalize"});
  EXPECT_THAT(std::string(CheckRoutes(unknown).message()), HasSubstr("Denormalize is no method"));
  std::vector<Route> twice = AllRoutes();
  twice.push_back({.path = path});
  EXPECT_THAT(std::string(CheckRoutes(twice).message()), HasSubstr(path));
}

}  // namespace
}  // namespace normd::rpc
