#include "server/obs/tenant_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace normd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// t1000, t1001, ...
std::vector<std::string> Tenants(int count) {
  std::vector<std::string> tenants;
  for (int i = 0; i < count; ++i) tenants.push_back("t" + std::to_string(1000 + i));
  return tenants;
}

TEST(TenantLabels, KeepsTheIndexOfATenantWhenOthersBecomeKnown) {
  TenantLabels tenants;
  EXPECT_EQ(tenants.Index("vision"), TenantLabels::kOther);
  tenants.Know({"vision"});
  const int vision = tenants.Index("vision");
  tenants.Know({"speech", "vision"});
  EXPECT_EQ(tenants.Index("vision"), vision);
  EXPECT_NE(tenants.Index("speech"), vision);
  EXPECT_EQ(tenants.Index(""), TenantLabels::kDefault);
}

TEST(TenantLabels, KnowsNoMoreThan64Tenants) {
  TenantLabels tenants;
  tenants.Know(Tenants(70));
  EXPECT_EQ(tenants.size(), 66u);
  EXPECT_NE(tenants.Index("t1063"), TenantLabels::kOther);
  EXPECT_EQ(tenants.Index("t1064"), TenantLabels::kOther);
}

TEST(TenantLabels, ATenantWithTheNameOfAFixedLabelSharesIt) {
  TenantLabels tenants;
  tenants.Know({"", "other", "default"});
  EXPECT_EQ(tenants.Index("other"), TenantLabels::kOther);
  EXPECT_EQ(tenants.Index("default"), TenantLabels::kDefault);
  EXPECT_EQ(tenants.size(), 2u) << "no label is there twice";
}

TEST(TenantCounters, CountsTheDefaultTenantKnownTenantsAndOthers) {
  MetricSet set;
  TenantLabels tenants;
  TenantCounters counters(&set, &tenants, "a_total", "By tenant.");
  EXPECT_EQ(set.Collect()[0].metric.size(), 2u);
  tenants.Know({"vision", "speech"});
  counters.Add(1, tenants.Index(""));
  counters.Add(2, tenants.Index("vision"));
  counters.Add(3, tenants.Index("nobody"));
  EXPECT_THAT(set.Text(), HasSubstr("a_total{tenant=\"default\"} 1\n"));
  EXPECT_THAT(set.Text(), HasSubstr("a_total{tenant=\"vision\"} 2\n"));
  EXPECT_THAT(set.Text(), HasSubstr("a_total{tenant=\"speech\"} 0\n"));
  EXPECT_THAT(set.Text(), HasSubstr("a_total{tenant=\"other\"} 3\n"));
  EXPECT_EQ(set.Collect()[0].metric.size(), 4u);
}

TEST(TenantMirror, ShowsGaugesAsTheyAreAndCountersAsTheyGrow) {
  MetricSet set;
  TenantLabels tenants;
  tenants.Know({"vision"});
  TenantMirror gauge(&set, &tenants, "g", MetricType::kGauge, "A gauge.");
  TenantMirror counter(&set, &tenants, "c_total", MetricType::kCounter, "A counter.");
  EXPECT_THAT(set.Text(), HasSubstr("g{tenant=\"default\"} 0\n"));
  gauge.Set({{"", 3}, {"vision", 2}});
  counter.Set({{"vision", 2}});
  EXPECT_THAT(set.Text(), HasSubstr("g{tenant=\"default\"} 3\n"));
  EXPECT_THAT(set.Text(), HasSubstr("g{tenant=\"vision\"} 2\n"));
  EXPECT_THAT(set.Text(), HasSubstr("c_total{tenant=\"vision\"} 2\n"));
  gauge.Set({{"", 3}});
  counter.Set({{"vision", 5}});
  EXPECT_THAT(set.Text(), HasSubstr("g{tenant=\"vision\"} 0\n"));
  EXPECT_THAT(set.Text(), HasSubstr("c_total{tenant=\"vision\"} 5\n"));
}

TEST(TenantMirror, AddsUpTheTenantsThatAreNotKnown) {
  MetricSet set;
  TenantLabels tenants;
  tenants.Know(Tenants(128));
  TenantMirror gauge(&set, &tenants, "g", MetricType::kGauge, "A gauge.");
  std::map<std::string, int64_t> values;
  for (const std::string& tenant : Tenants(128)) values[tenant] = 1;
  gauge.Set(values);
  gauge.Set(values);
  EXPECT_THAT(set.Text(), HasSubstr("g{tenant=\"t1063\"} 1\n"));
  EXPECT_THAT(set.Text(), Not(HasSubstr("t1064")));
  EXPECT_THAT(set.Text(), HasSubstr("g{tenant=\"other\"} 64\n"));
}

}  // namespace
}  // namespace normd
