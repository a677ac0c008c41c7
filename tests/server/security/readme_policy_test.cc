// The policy that server/README.md shows is one that the server takes, and means what the page says.

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "server/rpc/services/method_names.h"
#include "server/security/policy_file.h"

namespace normd {
namespace {

TEST(ReadmePolicy, ParsesAndDecidesAsThePageSays) {
  std::ifstream file(NORMD_SOURCE_DIR "/server/README.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  const std::string opening = "```toml\n";
  const size_t begin = page.find(opening, page.find("### Policy"));
  ASSERT_NE(begin, std::string::npos);
  const std::string text = page.substr(begin + opening.size(), page.find("```", begin + 3) - begin - opening.size());
  const absl::StatusOr<Policy> policy =
      ParsePolicy({.option = "--policy_file", .path = "server/README.md"}, text, rpc::AllMethodPaths());
  ASSERT_TRUE(policy.ok()) << policy.status();
  EXPECT_EQ(policy->TenantOf("token:vision-ci"), "vision");
  EXPECT_EQ(policy->TenantOf("uri:spiffe://prod/speech/a"), "");
  EXPECT_TRUE(policy->tenants[0].quotas.max_region_bytes.has_value());
  EXPECT_TRUE(policy->Allows("token:vision-ci", "/normd.v1.Sessions/CreateSession"));
  EXPECT_FALSE(policy->Allows("token:vision-ci", "/normd.v1.Sessions/ExportSession"));
  EXPECT_TRUE(policy->Allows("uri:spiffe://prod/backup", "/normd.v1.Sessions/ExportSession"));
  EXPECT_TRUE(policy->Allows("anonymous", "/grpc.health.v1.Health/Check"));
  EXPECT_FALSE(policy->Allows("anonymous", "/normd.v1.Normalizer/Normalize"));
}

}  // namespace
}  // namespace normd
