// Totals that two threads keep true: the writer's growth and the lister's counts.
#include "server/session/durable/store_totals.h"

#include <optional>

#include "gtest/gtest.h"

namespace normd {
namespace {

constexpr SessionTotals kOneSession = {.sessions = 1, .bytes = 100};

TableTotals TwoOfNobodyAndOneOfVision() {
  return {.all = {.sessions = 3, .bytes = 300}, .tenants = {{"vision", kOneSession}}};
}

TEST(StoreTotalsTest, WhatNoTenantHasIsTheDefaultTenants) {
  const StoreTotals totals(TwoOfNobodyAndOneOfVision());
  EXPECT_EQ(totals.by_tenant().at("").sessions, 2);
  EXPECT_EQ(totals.For("vision").tenant.bytes, 100);
  EXPECT_EQ(totals.For("vision").all.bytes, 300);
}

TEST(StoreTotalsTest, GrowthIsCountedInAllAndForItsTenantAndTenantsWithoutSessionsAreLeftOut) {
  StoreTotals totals(TwoOfNobodyAndOneOfVision());
  totals.BeginWrite();
  totals.EndWrite({{"speech", {.sessions = 2, .bytes = 50}}, {"vision", {.sessions = -1, .bytes = -100}}});
  EXPECT_EQ(totals.all().sessions, 4);
  EXPECT_EQ(totals.all().bytes, 250);
  EXPECT_EQ(totals.For("speech").tenant.bytes, 50);
  EXPECT_EQ(totals.by_tenant().count("vision"), 0);
}

TEST(StoreTotalsTest, NothingIsCountedWhileATransactionIsWritten) {
  StoreTotals totals({});
  totals.BeginWrite();
  EXPECT_FALSE(totals.BeginCount().has_value());
  totals.EndWrite({});
  EXPECT_TRUE(totals.BeginCount().has_value());
}

TEST(StoreTotalsTest, ACountReplacesTheTotalsUnlessATransactionHasBegunSince) {
  StoreTotals totals({});
  const std::optional<int64_t> before = totals.BeginCount();
  ASSERT_TRUE(before.has_value());
  totals.BeginWrite();
  totals.EndCount(*before, TwoOfNobodyAndOneOfVision());
  EXPECT_EQ(totals.all().sessions, 0) << "nobody knows whether the count includes the transaction";
  totals.EndWrite({{"", kOneSession}});
  totals.EndCount(*before, TwoOfNobodyAndOneOfVision());
  EXPECT_EQ(totals.all().sessions, 1);
  totals.EndCount(*totals.BeginCount(), TwoOfNobodyAndOneOfVision());
  EXPECT_EQ(totals.all().sessions, 3);
}

}  // namespace
}  // namespace normd
