#include "server/base/lru.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace normd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The caches' values are shared, so that what leaves can be watched.
using Shared = std::shared_ptr<const int>;
using Strings = Lru<std::string, Shared>;

Shared Of(int value) { return std::make_shared<const int>(value); }

std::vector<std::string> KeysOf(const Strings::Entries& entries) {
  std::vector<std::string> keys;
  for (const Strings::Entry& entry : entries) keys.push_back(entry.key);
  return keys;
}

// The keys of what leaves.
std::vector<std::string> Insert(Strings& lru, std::string key, int value, int64_t cost = 1) {
  Shared shared = Of(value);
  return KeysOf(lru.Insert(std::move(key), &shared, cost));
}

TEST(LruTest, FindsOnlyInsertedEntries) {
  Strings lru(2);
  EXPECT_EQ(lru.Find("a"), nullptr);
  Insert(lru, "a", 1);
  Insert(lru, "b", 2);
  ASSERT_NE(lru.Find("a"), nullptr);
  EXPECT_EQ(**lru.Find("a"), 1);
  EXPECT_EQ(**lru.Find("b"), 2);
  EXPECT_EQ(lru.Find("ab"), nullptr);
  EXPECT_EQ(lru.size(), 2);
}

TEST(LruTest, TheLeastRecentlyUsedLeavesFirst) {
  Strings lru(3);
  for (const char* const key : {"a", "b", "c"}) EXPECT_THAT(Insert(lru, key, 0), IsEmpty());
  EXPECT_THAT(Insert(lru, "d", 0), ElementsAre("a"));
  EXPECT_THAT(Insert(lru, "e", 0), ElementsAre("b"));
  EXPECT_EQ(lru.Find("a"), nullptr);
  EXPECT_NE(lru.Find("c"), nullptr);
}

TEST(LruTest, FindingIsAUse) {
  Strings lru(3);
  for (const char* const key : {"a", "b", "c"}) Insert(lru, key, 0);
  lru.Find("a");
  EXPECT_THAT(Insert(lru, "d", 0), ElementsAre("b"));
}

TEST(LruTest, OldestDoesNotCountAsAUse) {
  Strings lru(2);
  EXPECT_EQ(lru.Oldest(), nullptr);
  Insert(lru, "a", 0);
  Insert(lru, "b", 0);
  ASSERT_NE(lru.Oldest(), nullptr);
  EXPECT_EQ(lru.Oldest()->key, "a");
  EXPECT_THAT(Insert(lru, "c", 0), ElementsAre("a"));
  EXPECT_EQ(lru.Oldest()->key, "b");
}

TEST(LruTest, AsManyLeaveAsTheNewOneNeedsAndNoMore) {
  Strings lru(10);
  Insert(lru, "a", 0, 3);
  Insert(lru, "b", 0, 3);
  Insert(lru, "c", 0, 4);
  EXPECT_EQ(lru.cost(), 10) << "the limit itself fits";
  EXPECT_THAT(Insert(lru, "d", 0, 5), ElementsAre("a", "b"));
  EXPECT_EQ(lru.cost(), 9);
  EXPECT_EQ(lru.size(), 2);
}

TEST(LruTest, TheNewestStaysEvenIfItAloneDoesNotFit) {
  Strings lru(10);
  Insert(lru, "a", 0, 5);
  EXPECT_THAT(Insert(lru, "huge", 0, 100), ElementsAre("a"));
  EXPECT_NE(lru.Find("huge"), nullptr);
  EXPECT_EQ(lru.cost(), 100);
  EXPECT_THAT(Insert(lru, "b", 0, 5), ElementsAre("huge"));
  EXPECT_EQ(lru.cost(), 5);
}

TEST(LruTest, AReplacementHandsBackTheOldValueAndCountsTheNewCost) {
  Strings lru(10);
  Insert(lru, "a", 1, 4);
  Insert(lru, "b", 2, 4);
  Shared value = Of(3);
  EXPECT_THAT(lru.Insert("a", &value, 6), IsEmpty());
  EXPECT_EQ(*value, 1);
  EXPECT_EQ(**lru.Find("a"), 3);
  EXPECT_EQ(lru.cost(), 10);
  EXPECT_EQ(lru.size(), 2);
}

TEST(LruTest, AReplacementIsAUseAndMayMakeOthersLeave) {
  Strings lru(10);
  Insert(lru, "a", 1, 4);
  Insert(lru, "b", 2, 4);
  EXPECT_THAT(Insert(lru, "a", 3, 7), ElementsAre("b"));
  EXPECT_EQ(**lru.Find("a"), 3);
  EXPECT_EQ(lru.cost(), 7);
}

TEST(LruTest, AnErasedEntryIsHandedOverAndCostsNothingMore) {
  Strings lru(10);
  Insert(lru, "a", 1, 4);
  Insert(lru, "b", 2, 4);
  EXPECT_THAT(KeysOf(lru.Erase("a")), ElementsAre("a"));
  EXPECT_THAT(KeysOf(lru.Erase("a")), IsEmpty());
  EXPECT_EQ(lru.Find("a"), nullptr);
  EXPECT_EQ(lru.cost(), 4);
  EXPECT_EQ(lru.size(), 1);
}

TEST(LruTest, TheOldestCanBeErasedByItsOwnKey) {
  Strings lru(10);
  Insert(lru, "a key that is too long to lie in its string", 1);
  Insert(lru, "b", 2);
  EXPECT_EQ(lru.Erase(lru.Oldest()->key).size(), 1U);
  EXPECT_EQ(lru.Oldest()->key, "b");
}

TEST(LruTest, ClearedItHoldsNothingAndCanBeFilledAgain) {
  Strings lru(2);
  Insert(lru, "a", 1);
  Insert(lru, "b", 2);
  EXPECT_THAT(KeysOf(lru.Clear()), ElementsAre("b", "a"));
  EXPECT_EQ(lru.size(), 0);
  EXPECT_EQ(lru.cost(), 0);
  EXPECT_EQ(lru.Find("a"), nullptr);
  EXPECT_THAT(Insert(lru, "a", 3), IsEmpty());
  EXPECT_EQ(**lru.Find("a"), 3);
}

TEST(LruTest, EvictedEntriesLiveUntilTheCallerReleasesThem) {
  Strings lru(1);
  Shared evicted = Of(1);
  const std::weak_ptr<const int> seen = evicted;
  { EXPECT_THAT(lru.Insert("a", &evicted, 1), IsEmpty()); }
  EXPECT_EQ(evicted, nullptr) << "the cache has it now";
  {
    Shared next = Of(2);
    const Strings::Entries left = lru.Insert("b", &next, 1);
    EXPECT_FALSE(seen.expired());
  }
  EXPECT_TRUE(seen.expired());
}

TEST(LruTest, AKeyThatIsThereAlreadyIsNotMovedFrom) {
  Strings lru(2);
  std::string key = "a key that is too long to lie in its string";
  Shared value = Of(1);
  EXPECT_THAT(lru.Insert(key, &value, 1), IsEmpty());
  EXPECT_FALSE(key.empty()) << "copied";
  value = Of(2);
  EXPECT_THAT(lru.Insert(std::move(key), &value, 1), IsEmpty());
  EXPECT_FALSE(key.empty());  // NOLINT(bugprone-use-after-move): what this test is about
  EXPECT_EQ(**lru.Find(key), 2);
}

TEST(LruTest, AStringIsLookedUpByAViewOfOtherBytes) {
  static_assert(std::is_same_v<Strings::View, std::string_view>, "a lookup makes no string");
  Strings lru(100);
  for (int i = 0; i < 50; ++i) Insert(lru, std::to_string(i) + std::string(100, 'k'), i);
  const std::string text = "x7" + std::string(100, 'k') + "y";
  const Shared* const found = lru.Find(std::string_view(text).substr(1, 101));
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(**found, 7);
}

TEST(LruTest, AnyKeyThatHasAnOrderWillDo) {
  struct Key {
    std::string name;
    int number;
    bool operator<(const Key& other) const { return std::tie(name, number) < std::tie(other.name, other.number); }
  };
  Lru<Key, int> lru(2);
  int value = 1;
  EXPECT_THAT(lru.Insert(Key{"a", 1}, &value, 1), IsEmpty());
  value = 2;
  EXPECT_THAT(lru.Insert(Key{"a", 2}, &value, 1), IsEmpty());
  EXPECT_EQ(*lru.Find({"a", 1}), 1);
  value = 3;
  EXPECT_EQ(lru.Insert(Key{"b", 1}, &value, 1).front().key.number, 2);
  EXPECT_EQ(lru.Find({"a", 2}), nullptr);
  EXPECT_EQ(*lru.Find({"b", 1}), 3);
}

// Against the plain way to say it: a list of all entries in the order of their use.
TEST(LruTest, HoldsTheSameAsAListThatIsSearchedFromEndToEnd) {
  constexpr int64_t kLimit = 20;
  Strings lru(kLimit);
  struct Plain {
    std::string key;
    int value;
    int64_t cost;
  };
  std::vector<Plain> plain;  // the most recently used first
  std::minstd_rand random(1);
  const auto below = [&random](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int i = 0; i < 20000; ++i) {
    const std::string key = std::to_string(below(12));
    auto at = std::find_if(plain.begin(), plain.end(), [&](const Plain& p) { return p.key == key; });
    const uint32_t what = below(8);
    if (what == 0) {
      EXPECT_EQ(lru.Erase(key).size(), at == plain.end() ? 0U : 1U);
      if (at != plain.end()) plain.erase(at);
    } else if (what < 4) {
      const Shared* const found = lru.Find(key);
      ASSERT_EQ(found != nullptr, at != plain.end());
      if (found == nullptr) continue;
      EXPECT_EQ(**found, at->value);
      std::rotate(plain.begin(), at, at + 1);
    } else {
      const int64_t cost = 1 + below(9);
      if (at != plain.end()) plain.erase(at);
      plain.insert(plain.begin(), {key, i, cost});
      std::vector<std::string> left;
      for (int64_t sum = kLimit + 1; sum > kLimit && !plain.empty();) {
        sum = 0;
        for (const Plain& p : plain) sum += p.cost;
        if (sum <= kLimit) break;
        left.push_back(plain.back().key);
        plain.pop_back();
      }
      ASSERT_EQ(Insert(lru, key, i, cost), left);
    }
    ASSERT_EQ(lru.size(), static_cast<int64_t>(plain.size()));
    if (!plain.empty()) {
      ASSERT_EQ(lru.Oldest()->key, plain.back().key);
    }
  }
}

TEST(Lru, TakesAnotherLimitWithTheNextEntry) {
  Strings lru(4);
  for (const char* key : {"a", "b", "c", "d"}) EXPECT_THAT(Insert(lru, key, 1), IsEmpty());
  lru.set_max_cost(2);
  EXPECT_EQ(lru.size(), 4);
  EXPECT_THAT(Insert(lru, "e", 1), ElementsAre("a", "b", "c"));
  lru.set_max_cost(3);
  EXPECT_THAT(Insert(lru, "f", 1), IsEmpty());
}

}  // namespace
}  // namespace normd
