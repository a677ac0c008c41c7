#include "server/security/policy_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "kernels/base/errors.h"

namespace normd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string> kPolicyMethods = {"/normd.v1.Normalizer/Normalize", "/normd.v1.Normalizer/Describe",
                                                 "/normd.v1.Sessions/GetSession", "/grpc.health.v1.Health/Check"};

absl::StatusOr<Policy> ParsePolicyText(const std::string& text) {
  return ParsePolicy({.option = "--policy_file", .path = "/etc/policy.toml"}, text, kPolicyMethods);
}

Policy Parsed(const std::string& text) {
  const absl::StatusOr<Policy> policy = ParsePolicyText(text);
  EXPECT_TRUE(policy.ok()) << policy.status();
  return policy.value_or(Policy());
}

std::string PolicyError(const std::string& text) {
  const absl::Status status = ParsePolicyText(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  EXPECT_TRUE(detail.has_value());
  EXPECT_EQ(detail.value_or(ErrorDetail()).reason, "BAD_FILE");
  return std::string(status.message());
}

constexpr char kWhole[] = R"(
[[tenant]]
name = "vision"
identities = ["uri:spiffe://prod/vision/*", "token:vision-*"]
max_sessions = 1000
max_session_bytes = "1GiB"
max_in_flight_bytes = 65536
max_regions = 0
[[tenant]]
name = "all-tokens"
identities = ["token:*"]
[[deny]]
identities = ["token:old-*"]
methods = ["*"]
[[allow]]
identities = ["token:*"]
methods = ["/normd.v1.Normalizer/*"]
[[allow]]
identities = ["*"]
methods = ["/grpc.health.v1.Health/*"]
)";

TEST(PolicyFile, GivesTheTenantsWithTheirQuotas) {
  const Policy policy = Parsed(kWhole);
  ASSERT_EQ(policy.tenants.size(), 2U);
  const TenantPolicy& vision = policy.tenants[0];
  EXPECT_EQ(vision.name, "vision");
  EXPECT_THAT(vision.identities, ElementsAre("uri:spiffe://prod/vision/*", "token:vision-*"));
  EXPECT_EQ(vision.quotas.max_sessions, 1000);
  EXPECT_EQ(vision.quotas.max_session_bytes, int64_t{1} << 30);
  EXPECT_EQ(vision.quotas.max_in_flight_bytes, 65536);
  EXPECT_EQ(vision.quotas.max_regions, 0);
  EXPECT_EQ(vision.quotas.max_region_bytes, std::nullopt);
  EXPECT_EQ(policy.tenants[1].quotas.max_sessions, std::nullopt);
}

TEST(Policy, PutsAnIdentityIntoTheFirstTenantThatMatches) {
  const Policy policy = Parsed(kWhole);
  EXPECT_EQ(policy.TenantOf("token:vision-ci"), "vision");
  EXPECT_EQ(policy.TenantOf("token:speech"), "all-tokens");
  EXPECT_EQ(policy.TenantOf("uri:spiffe://prod/vision/a/b"), "vision");
  EXPECT_EQ(policy.TenantOf("uid:1000"), "");
}

TEST(Policy, AsksTheDenyRulesThenTheAllowRulesAndElseDenies) {
  const Policy policy = Parsed(kWhole);
  EXPECT_TRUE(policy.Allows("token:vision-ci", "/normd.v1.Normalizer/Normalize"));
  EXPECT_FALSE(policy.Allows("token:vision-ci", "/normd.v1.Sessions/GetSession"));
  EXPECT_TRUE(policy.Allows("anonymous", "/grpc.health.v1.Health/Check"));
  EXPECT_FALSE(policy.Allows("anonymous", "/normd.v1.Normalizer/Normalize"));
  EXPECT_FALSE(policy.Allows("token:old-ci", "/normd.v1.Normalizer/Normalize"));
  EXPECT_FALSE(policy.Allows("token:old-ci", "/grpc.health.v1.Health/Check"));
}

TEST(Policy, OfAnEmptyFileAllowsNothing) { EXPECT_FALSE(Parsed("").Allows("uid:0", "/grpc.health.v1.Health/Check")); }

TEST(PolicyFile, NamesTheLineAndTheKeyOfAMistake) {
  EXPECT_EQ(PolicyError("\n\n[[alow]]\nmethods = [\"*\"]\n"),
            "--policy_file /etc/policy.toml, line 3: alow is no key of a policy; did you mean allow?");
  EXPECT_EQ(PolicyError("[[deny]]\nidentities = [\"*\"]\nmetods = [\"*\"]\n"),
            "--policy_file /etc/policy.toml, line 3: deny[0].metods is no key of a policy; did you mean methods?");
  EXPECT_THAT(PolicyError("[[tenant]]\nname = \"a\"\nidentities = [\"uid:1\"]\nmax_session = 1\n"),
              AllOf(HasSubstr("line 4: tenant[0].max_session is"), HasSubstr("did you mean max_sessions?")));
}

TEST(PolicyFile, RefusesTextThatIsNotToml) {
  EXPECT_THAT(PolicyError("[[allow]]\nidentities = [\"*\"\n"), HasSubstr("is not TOML"));
  EXPECT_THAT(PolicyError("[[allow]]\nmethods = [\"*\"]\nmethods = [\"*\"]\n"), HasSubstr("line 3: is not TOML"));
  EXPECT_THAT(PolicyError(std::string("\0\xff\xfe", 3)), HasSubstr("is not TOML"));
}

TEST(PolicyFile, RefusesRulesWithoutIdentitiesOrMethods) {
  for (const char* list : {"", "methods = []", "methods = \"*\"", "methods = [1]", "methods = [[\"*\"]]"}) {
    EXPECT_THAT(PolicyError(std::string("[[allow]]\nidentities = [\"*\"]\n") + list),
                HasSubstr("allow[0].methods must be a list of at least one text"))
        << list;
  }
  EXPECT_THAT(PolicyError("[[deny]]\nmethods = [\"*\"]\n"), HasSubstr("line 1: deny[0].identities must be"));
  EXPECT_THAT(PolicyError("allow = 1"), HasSubstr("allow must be written as [[allow]]"));
  EXPECT_THAT(PolicyError("[deny]\nidentities = [\"*\"]"), HasSubstr("deny must be written as [[deny]]"));
}

TEST(PolicyFile, RefusesPatternsThatNoIdentityMatches) {
  for (const char* identity : {"trainer", "", "token", "Token:*", "user:1", "anonymously", "x*"}) {
    EXPECT_THAT(PolicyError(std::string("[[deny]]\nidentities = [\"") + identity + "\"]\nmethods = [\"*\"]"),
                HasSubstr("is no identity"))
        << identity;
  }
  for (const char* identity : {"*", "token:*", "tok*", "uid:0", "anonymous", "anon*", "cn:a b", "u*", "*trainer"}) {
    EXPECT_TRUE(ParsePolicyText(std::string("[[deny]]\nidentities = [\"") + identity + "\"]\nmethods = [\"*\"]").ok())
        << identity;
  }
}

TEST(PolicyFile, RefusesPatternsThatNoMethodMatches) {
  EXPECT_THAT(PolicyError("[[deny]]\nidentities = [\"*\"]\nmethods = [\"/normd.v1.Normalizer/Normalise\"]"),
              HasSubstr("is no method; did you mean /normd.v1.Normalizer/Normalize?"));
  EXPECT_THAT(PolicyError("[[deny]]\nidentities = [\"*\"]\nmethods = [\"Normalizer/*\"]"),
              HasSubstr("matches no method of this server"));
}

TEST(PolicyFile, RefusesTenantsWithABadName) {
  for (const char* name : {"", "Vision", "a_b", "a/b", "default"}) {
    EXPECT_THAT(PolicyError(std::string("[[tenant]]\nname = \"") + name + "\"\nidentities = [\"*\"]"),
                HasSubstr("tenant[0].name must have"))
        << name;
  }
  EXPECT_THAT(PolicyError("[[tenant]]\nidentities = [\"*\"]"), HasSubstr("tenant[0].name must have"));
  EXPECT_THAT(PolicyError("[[tenant]]\nname = \"a\"\nidentities = [\"uid:1\"]\n[[tenant]]\nname = \"a\"\n"
                          "identities = [\"uid:2\"]"),
              HasSubstr("line 5: tenant[1].name is that of an earlier tenant"));
}

TEST(PolicyFile, RefusesQuotasThatAreNoNumbers) {
  for (const char* quota : {"max_sessions = -1", "max_sessions = \"1\"", "max_regions = 1.5",
                            "max_region_bytes = \"1GB\"", "max_session_bytes = true"}) {
    EXPECT_THAT(PolicyError(std::string("[[tenant]]\nname = \"a\"\nidentities = [\"*\"]\n") + quota),
                HasSubstr("line 4: tenant[0].max_"))
        << quota;
  }
}

}  // namespace
}  // namespace normd
