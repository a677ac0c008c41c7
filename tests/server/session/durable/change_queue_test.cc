// The order, the limits and the waits of the changes that a writer takes.
#include "server/session/durable/change_queue.h"

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace normd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ChangeQueue::Room kRoom = {.changes = 100, .bytes = 1000};

bool Any(const Change& /*next*/) { return true; }

class ChangeQueueTest : public ::testing::Test {
 protected:
  // Adds a change of `id`. Its answer, if there is one, is in answered_.
  void Add(ChangeQueue* queue, const std::string& id, int64_t bytes = 0) { queue->Add(ChangeOf(id), bytes); }
  Change ChangeOf(const std::string& id) {
    return {.id = id, .what = ResetChange{}, .session_done = [this](const absl::StatusOr<SessionPtr>& result) {
              answered_ = result.status();
            }};
  }
  static std::vector<std::string> Ids(const std::vector<Change>& changes) {
    std::vector<std::string> ids;
    for (const Change& change : changes) ids.push_back(change.id);
    return ids;
  }

  absl::Status answered_;
  std::vector<Change> taken_;
};

TEST_F(ChangeQueueTest, ChangesLeaveInOrderAndThoseThatAreTriedAgainComeFirst) {
  ChangeQueue queue(10, 1000);
  for (const char* id : {"c", "d"}) Add(&queue, id);
  std::vector<Change> again;
  for (const char* id : {"a", "b"}) again.push_back(ChangeOf(id));
  EXPECT_FALSE(queue.PutBack(std::move(again))) << "others wait";
  queue.Take(kRoom, Any, &taken_);
  EXPECT_THAT(Ids(taken_), ElementsAre("a", "b", "c", "d"));
  EXPECT_TRUE(queue.PutBack(std::move(taken_)));
}

TEST_F(ChangeQueueTest, AGroupTakesWhatItHasRoomForAndNothingBehindAChangeThatMustWait) {
  ChangeQueue queue(10, 1000);
  for (const char* id : {"a", "b", "c", "d"}) Add(&queue, id, 10);
  EXPECT_EQ(queue.Take({.changes = 1, .bytes = 1000}, Any, &taken_), 10);
  EXPECT_EQ(queue.Take({.changes = 9, .bytes = 5}, Any, &taken_), 10) << "over the bytes by one change";
  EXPECT_EQ(queue.Take({.changes = 9, .bytes = 0}, Any, &taken_), 0);
  EXPECT_EQ(queue.Take(
                kRoom, [](const Change& next) { return next.id != "c"; }, &taken_),
            0);
  EXPECT_THAT(Ids(taken_), ElementsAre("a", "b"));
  EXPECT_EQ(queue.waiting(absl::InfiniteFuture()).waiting, 2);
}

TEST_F(ChangeQueueTest, AFullQueueRefusesInlineUntilThereIsRoom) {
  ChangeQueue few(2, 1000);
  for (const char* id : {"a", "b", "c"}) Add(&few, id);
  EXPECT_EQ(answered_.code(), absl::StatusCode::kResourceExhausted);
  ChangeQueue small(10, 100);
  answered_ = absl::OkStatus();
  Add(&small, "larger than the queue, and alone", 200);
  EXPECT_TRUE(answered_.ok());
  Add(&small, "b", 1);
  EXPECT_EQ(answered_.code(), absl::StatusCode::kResourceExhausted);
  small.Take(kRoom, Any, &taken_);
  answered_ = absl::OkStatus();
  Add(&small, "b", 1);
  EXPECT_TRUE(answered_.ok());
}

TEST_F(ChangeQueueTest, AfterAFailureEverythingIsRefused) {
  ChangeQueue queue(10, 1000);
  EXPECT_TRUE(queue.Fail());
  EXPECT_FALSE(queue.Fail()) << "it had failed before";
  Add(&queue, "a");
  EXPECT_EQ(answered_.code(), absl::StatusCode::kUnavailable);
  queue.Take(kRoom, Any, &taken_);
  EXPECT_THAT(taken_, IsEmpty());
}

TEST_F(ChangeQueueTest, AWriterStopsWhenNothingIsLeft) {
  ChangeQueue queue(10, 1000);
  EXPECT_TRUE(queue.AwaitFirst(absl::ZeroDuration())) << "the time has passed";
  Add(&queue, "a");
  queue.Stop();
  EXPECT_TRUE(queue.AwaitFirst(absl::InfiniteDuration()));
  queue.Take(kRoom, Any, &taken_);
  EXPECT_FALSE(queue.AwaitFirst(absl::InfiniteDuration()));
  const absl::Time start = absl::Now();
  queue.Pause(absl::Minutes(1));
  EXPECT_LT(absl::Now() - start, absl::Seconds(30)) << "nobody pauses who must stop";
}

TEST_F(ChangeQueueTest, AWriterThatWaitsForManyLooksAgainWhenTheyAreThereAndWhenItIsWoken) {
  for (const bool woken : {false, true}) {
    ChangeQueue queue(10, 1000);
    std::atomic<bool> ended{false};
    std::thread caller([&] {
      for (const char* id : {"a", "b", "c"}) Add(&queue, id);
      if (!woken) return;
      ended = true;
      queue.Wake();
    });
    const size_t wanted = woken ? 4 : 3;
    size_t seen = 0;
    std::string first;
    queue.AwaitMany(wanted, [&](const Change* next, size_t queued) {
      seen = queued;
      if (next != nullptr) first = next->id;
      return queued >= wanted || (woken && queued == 3 && ended);
    });
    caller.join();
    EXPECT_EQ(seen, 3);
    EXPECT_EQ(first, "a");
  }
}

}  // namespace
}  // namespace normd
