#include "server/session/session_key.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/session/session_store.h"

namespace normd {
namespace {

TEST(SessionKeyTest, SaysWhoseTheSessionIsAndGivesTheIdBack) {
  EXPECT_EQ(SessionKey("vision", "a.b"), "/vision/a.b");
  EXPECT_EQ(TenantOf("/vision/a.b"), "vision");
  EXPECT_EQ(IdOf("/vision/a.b"), "a.b");
  EXPECT_EQ(SessionKey("", "a"), "a") << "as before there were tenants";
  EXPECT_EQ(TenantOf("a"), "");
  EXPECT_EQ(IdOf("a"), "a");
  EXPECT_EQ(IdOf(SessionKey("vision", "")), "");
  EXPECT_EQ(TenantOf(SessionKey("vision", "")), "vision");
}

TEST(SessionKeyTest, IsMadeOfATenantsNameAndAnId) {
  for (const char* good : {"a", "/vision/a", "/0/a.b_c-d", "/a-b/0"})
    EXPECT_TRUE(ValidateSessionKey(good).ok()) << good;
  EXPECT_TRUE(ValidateSessionKey("/" + std::string(63, 'a') + "/" + std::string(63, 'b')).ok());
  for (const std::string& bad :
       {std::string(), std::string("/"), std::string("//"), std::string("//a"), std::string("/vision"),
        std::string("/vision/"), std::string("/vision//a"), std::string("/vision/a/b"), std::string("vision/a"),
        std::string("/Vision/a"), std::string("/vi.sion/a"), std::string("/vision/layer_norm"),
        "/" + std::string(64, 'a') + "/a"}) {
    EXPECT_EQ(ValidateSessionKey(bad).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(SessionKeyTest, KeysOfATenantAreOneRange) {
  // Names that sort next to each other, and the first and the last ids that there are.
  std::vector<std::string> tenants = {"", "a", "a-", "a-b", "a0", "ab", "b", "-", "zz"};
  std::vector<std::string> keys;
  for (const std::string& tenant : tenants) {
    for (const char* id : {"0", "0.0", "a", "z", "zz"}) keys.push_back(SessionKey(tenant, id));
  }
  std::sort(keys.begin(), keys.end());
  for (const std::string& tenant : tenants) {
    ListQuery query;
    query.tenant = tenant;
    const KeyRange range = RangeOf(query);
    for (const std::string& key : keys) {
      EXPECT_EQ(key > range.after && key < range.end, TenantOf(key) == tenant) << key << " for " << tenant;
    }
    query.after_id = SessionKey(tenant, "a");
    EXPECT_EQ(RangeOf(query).after, query.after_id);
    EXPECT_EQ(RangeOf(query).end, range.end);
  }
  ListQuery all;
  all.all_tenants = true;
  for (const std::string& key : keys) EXPECT_TRUE(key > RangeOf(all).after && key < RangeOf(all).end) << key;
}

TEST(SessionKeyTest, APlaceInTheRangeOfAnotherTenantDoesNotWidenTheOwn) {
  ListQuery query;
  query.tenant = "b";
  for (const char* after : {"/a/x", "/c/x", "x", "0"}) {
    query.after_id = after;
    const KeyRange range = RangeOf(query);
    EXPECT_GE(range.after, "/b/");
    EXPECT_EQ(range.end, "/b0");
  }
}

}  // namespace
}  // namespace normd
