// Who wins when the writer and the reader meet at a session in memory, and who has its step ids meanwhile.
#include "server/session/durable/session_cache.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/session/fixtures.h"

namespace normd {
namespace {

using session_test::BatchSpec;
using session_test::MomentsOf;
using session_test::Step;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr RowVersion kFirst = {.key = 7, .revision = 1};
constexpr RowVersion kSecond = {.key = 7, .revision = 2};
constexpr absl::Duration kAnyAge = absl::InfiniteDuration();

StoredSession Stored(uint64_t version) {
  Session session = session_test::NewSession("a", BatchSpec(), 2);
  session.uid = "u";
  session.version = version;
  session.parameters = std::make_shared<const OwnedParameters>();
  session.state = InitialState(session.spec, 2);
  StoredSession stored;
  stored.published = std::make_shared<const Session>(std::move(session));
  stored.steps.Add({"client", version + 1}, {.sequence = version + 1, .version = version}, {});
  return stored;
}

class SessionCacheTest : public ::testing::Test {
 protected:
  // Loads "a" into memory, as the reader does.
  bool Load(uint64_t version, RowVersion row) {
    cache_.BeginLoads({{"a", false}}, now_);
    return cache_.FinishLoad("a", Stored(version), row, now_);
  }
  // The version that callers see; -1 if they would have to ask the table.
  int64_t Seen(absl::Duration max_age = kAnyAge) {
    const SessionPtr session = cache_.Find("a", max_age, now_);
    return session == nullptr ? -1 : static_cast<int64_t>(session->version);
  }
  // Moves "a" into group_ and applies a step to it.
  void StepInGroup(uint64_t sequence) {
    std::vector<Change> changes;
    changes.push_back({.id = "a", .what = Step("a", MomentsOf({1, 3}, 2), StepId{"client", sequence})});
    EXPECT_THAT(cache_.MoveInto(changes, now_, &group_), IsEmpty());
    group_.Apply(&changes.front());
    EXPECT_TRUE(changes.front().status.ok()) << changes.front().status;
  }
  int64_t Loads() {
    StoreStats stats;
    cache_.AddStats(&stats);
    return stats.loads;
  }
  // The number of clients whose step ids are in memory, which a group then has.
  size_t ClientsInMemory() {
    ChangeGroup group(
        {}, [](std::string_view) { return Totals(); }, now_);
    std::vector<Change> changes;
    changes.push_back({.id = "a", .what = ResetChange{}});
    cache_.MoveInto(changes, now_, &group);
    return group.Find("a").stored.steps.clients().size();
  }

  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  SessionCache cache_{ResidencyLimits()};
  ChangeGroup group_{{}, [](std::string_view) { return Totals(); }, now_};
};

TEST_F(SessionCacheTest, ASnapshotStaysVisibleWhileAGroupHasItsStepIds) {
  EXPECT_TRUE(Load(1, kFirst)) << "it has come into memory";
  StepInGroup(3);
  EXPECT_EQ(Seen(), 1);
  EXPECT_EQ(ClientsInMemory(), 0);
}

TEST_F(SessionCacheTest, APublishedGroupIsSeenAndItsStepIdsAreBack) {
  Load(1, kFirst);
  StepInGroup(3);
  group_.Find("a").new_row = kSecond;
  cache_.Publish(now_, &group_);
  EXPECT_EQ(Seen(), 2);
  EXPECT_EQ(ClientsInMemory(), 1);
}

TEST_F(SessionCacheTest, AFailedGroupIsForgottenAndWhatItHasNotChangedIsBack) {
  Load(1, kFirst);
  std::vector<Change> changes;
  changes.push_back({.id = "a", .what = ResetChange{}});
  cache_.MoveInto(changes, now_, &group_);
  cache_.Return(now_, &group_);
  EXPECT_EQ(ClientsInMemory(), 1);
  Load(1, kSecond);
  ChangeGroup failed(
      {}, [](std::string_view) { return Totals(); }, now_);
  cache_.MoveInto(changes, now_, &failed);
  failed.Apply(&changes.front());
  cache_.Return(now_, &failed);
  EXPECT_EQ(Seen(), -1);
}

TEST_F(SessionCacheTest, ALoadDoesNotReplaceWhatWasPublishedMeanwhile) {
  Load(1, kFirst);
  StepInGroup(3);
  cache_.BeginLoads({{"a", false}}, now_);
  group_.Find("a").new_row = kSecond;
  cache_.Publish(now_, &group_);
  EXPECT_FALSE(cache_.FinishLoad("a", Stored(1), kFirst, now_));
  EXPECT_EQ(Seen(), 2);
  EXPECT_EQ(Loads(), 1);
}

TEST_F(SessionCacheTest, ALoadDoesNotBringBackASessionThatWasDeletedMeanwhile) {
  Load(1, kFirst);
  cache_.BeginLoads({{"a", true}}, now_);
  std::vector<Change> changes;
  changes.push_back({.id = "a", .what = DeleteChange{}});
  cache_.MoveInto(changes, now_, &group_);
  group_.Apply(&changes.front());
  cache_.Publish(now_, &group_);
  EXPECT_FALSE(cache_.FinishLoad("a", Stored(1), kFirst, now_));
  EXPECT_EQ(Seen(), -1);
}

TEST_F(SessionCacheTest, APublishedGroupDoesNotReplaceANewerRowOfAnotherServer) {
  Load(1, kFirst);
  StepInGroup(3);
  Load(5, {.key = 7, .revision = 3});
  group_.Find("a").new_row = kSecond;
  cache_.Publish(now_, &group_);
  EXPECT_EQ(Seen(), 5);
}

TEST_F(SessionCacheTest, AnUnchangedRowMakesASnapshotNewAgainUnlessItHasLeftMemory) {
  Load(1, kFirst);
  now_ += absl::Seconds(10);
  EXPECT_EQ(Seen(absl::Seconds(5)), -1);
  EXPECT_EQ(cache_.BeginLoads({{"a", false}}, now_).front().known, kFirst);
  EXPECT_EQ(cache_.FinishUnchanged("a", kFirst, now_)->published->version, 1);
  EXPECT_EQ(Seen(absl::Seconds(5)), 1);
  EXPECT_EQ(Seen(absl::ZeroDuration()), -1);
  cache_.BeginLoads({{"a", false}}, now_);
  cache_.Clear();
  EXPECT_FALSE(cache_.FinishUnchanged("a", kFirst, now_).has_value()) << "must be read again";
}

TEST_F(SessionCacheTest, AWholeRowIsRequestedWhateverMemoryKnows) {
  Load(1, kFirst);
  const std::vector<RowRequest> requests = cache_.BeginLoads({{"a", true}}, now_);
  ASSERT_THAT(requests, SizeIs(1));
  EXPECT_EQ(requests.front().known, RowVersion());
}

TEST_F(SessionCacheTest, IdleSessionsLeaveAndTheirNumberIsKnown) {
  cache_.SetLimits({.idle_timeout = absl::Minutes(1)});
  Load(1, kFirst);
  now_ += absl::Minutes(1);
  EXPECT_EQ(cache_.EvictIdle(now_), 0);
  now_ += absl::Seconds(1);
  EXPECT_EQ(cache_.EvictIdle(now_), 1);
  EXPECT_EQ(Seen(), -1);
}

}  // namespace
}  // namespace normd
