#include "server/rpc/codec/call_cache.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

namespace normd::rpc {
namespace {

std::shared_ptr<const RememberedCall> Known(uint64_t version) {
  auto remembered = std::make_shared<RememberedCall>();
  remembered->session_version = version;
  return remembered;
}

TEST(CallCacheTest, FindsTheNewestThatWasPut) {
  CallCache cache(4);
  EXPECT_EQ(cache.Find("a"), nullptr);
  cache.Put("a", Known(1));
  cache.Put("b", Known(2));
  cache.Put("a", Known(3));
  EXPECT_EQ(cache.Find("a")->session_version, 3U);
  EXPECT_EQ(cache.Find("b")->session_version, 2U);
}

TEST(CallCacheTest, EvictsTheLeastRecentlyUsedEntries) {
  CallCache cache(4);
  for (int i = 0; i < 100; ++i) {
    cache.Put(std::to_string(i), Known(0));
    EXPECT_NE(cache.Find(std::to_string(i)), nullptr);
    EXPECT_NE(cache.Find("0"), nullptr) << "asked for each time";
  }
  int left = 0;
  for (int i = 99; i >= 0; --i) left += cache.Find(std::to_string(i)) != nullptr ? 1 : 0;
  EXPECT_LE(left, 4);
}

TEST(CallCacheTest, AReplacementForgetsNobody) {
  CallCache cache(4);
  for (const char* const key : {"a", "b", "c", "d"}) cache.Put(key, Known(0));
  for (uint64_t i = 0; i < 20; ++i) cache.Put("d", Known(i));
  for (const char* const key : {"a", "b", "c", "d"}) EXPECT_NE(cache.Find(key), nullptr) << key;
}

// Another thread gets at the cache while the destructor of what was replaced, or had to leave, runs.
TEST(CallCacheTest, DestroysEvictedEntriesWithoutItsLock) {
  std::vector<std::future<void>> others;
  int freely = 0;
  CallCache cache(1);
  for (const char* const key : {"a", "a", "b", "c"}) {
    cache.Put(key, std::shared_ptr<const RememberedCall>(new RememberedCall(), [&](const RememberedCall* remembered) {
                delete remembered;
                others.push_back(std::async(std::launch::async, [&cache] { cache.Find("a"); }));
                if (others.back().wait_for(std::chrono::seconds(10)) == std::future_status::ready) ++freely;
              }));
  }
  cache.Put("d", Known(0));  // what is left at the end asks for nothing
  EXPECT_EQ(freely, 4);
}

TEST(CallCacheTest, KeepsNoLongKeys) {
  CallCache cache(4);
  const std::string longest(CallCache::kMaxKeyBytes, 'k');
  cache.Put(longest, Known(0));
  cache.Put(longest + "k", Known(0));
  EXPECT_NE(cache.Find(longest), nullptr);
  EXPECT_EQ(cache.Find(longest + "k"), nullptr);
}

}  // namespace
}  // namespace normd::rpc
