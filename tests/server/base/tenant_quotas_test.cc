#include "server/base/tenant_quotas.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/errors.h"

namespace normd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

std::string ReasonOf(const absl::Status& status) {
  const auto detail = GetErrorDetail(status);
  return detail.has_value() ? std::string(detail->reason) : "";
}

TEST(TenantQuotaTableTest, RefusesAndCountsUseBeyondATenantsQuota) {
  TenantQuotaTable table;
  EXPECT_TRUE(table.Check("a", TenantQuota::kSessions, 1 << 30, 1).ok()) << "no quota";
  table.Set({{"a", {.max_sessions = 2, .max_region_bytes = 100}}});
  EXPECT_TRUE(table.Check("a", TenantQuota::kSessions, 2, 1).ok());
  EXPECT_TRUE(table.Check("a", TenantQuota::kSessionBytes, 1 << 30, 1).ok());
  EXPECT_TRUE(table.Check("b", TenantQuota::kSessions, 3, 1).ok());
  EXPECT_THAT(table.refusals(), IsEmpty());
  const absl::Status refused = table.Check("a", TenantQuota::kSessions, 3, 1);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), "LIMIT_EXCEEDED");
  EXPECT_EQ(refused.message(),
            "sessions of the tenant would be 3, over the limit of 2 (set by max_sessions in the policy of the server)");
  EXPECT_FALSE(table.Check("a", TenantQuota::kRegionBytes, 101, 50).ok());
  EXPECT_THAT(table.refusals(), ElementsAre(Pair("a", 2)));
  table.Set({});
  EXPECT_TRUE(table.Check("a", TenantQuota::kSessions, 3, 1).ok());
  EXPECT_FALSE(table.Of("a").max_sessions.has_value());
}

TEST(TenantQuotaTableTest, DistinguishesBytesThatWillFitLaterFromThoseThatNeverFit) {
  TenantQuotaTable table;
  table.Set({{"a", {.max_in_flight_bytes = 100}}});
  EXPECT_EQ(ReasonOf(table.Check("a", TenantQuota::kInFlightBytes, 150, 100)), "NO_ROOM");
  EXPECT_EQ(ReasonOf(table.Check("a", TenantQuota::kInFlightBytes, 101, 101)), "LIMIT_EXCEEDED");
}

}  // namespace
}  // namespace normd
