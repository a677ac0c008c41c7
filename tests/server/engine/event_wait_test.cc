// Calls that wait for events: when they start, what ends the wait, and that nobody else waits with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/errors.h"
#include "server/base/steady_time.h"
#include "server/engine/engine.h"
#include "server/engine/event_poller.h"
#include "tests/server/engine/fixtures.h"

namespace normd {
namespace {

using engine_test::BytesOf;
using engine_test::CallTo;
using engine_test::Floats;
using engine_test::LayerSpec;
using session_test::BatchSpec;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// An event of another process, as the engine sees it.
class FakeEvent {
 public:
  std::function<absl::StatusOr<bool>()> Asked() {
    return [this]() -> absl::StatusOr<bool> {
      ++queries_;
      if (fails_) return absl::UnavailableError("the device does not say");
      return completed_.load();
    };
  }
  void Complete() { completed_ = true; }
  void Fail() { fails_ = true; }
  int queries() const { return queries_; }
  // Waits until the event has been asked `more` times from now on.
  void AwaitQueries(int more) const {
    const int until = queries_ + more;
    for (int i = 0; i < 10'000 && queries_ < until; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_GE(queries_, until) << "nobody asks";
  }

 private:
  std::atomic<bool> completed_{false}, fails_{false};
  std::atomic<int> queries_{0};
};

class EventWaitTest : public engine_test::EngineFixture {
 protected:
  using Reply = std::future<absl::StatusOr<CallReply>>;

  Call CallBehind(FakeEvent* event) const {
    Call call = CallTo(LayerSpec({4}), x_.View());
    call.events_completed = event->Asked();
    return call;
  }
  Reply Start(Engine* engine, Call call) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<CallReply>>>();
    engine->Submit(std::move(call), [promise](auto reply) { promise->set_value(std::move(reply)); });
    return promise->get_future();
  }
  Reply Start(Call call) { return Start(&engine_, std::move(call)); }
  static bool IsReady(const Reply& reply) {
    return reply.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

  Floats x_ = {{2, 4}, {1, 2, 3, 4, 5, 6, 7, 9}};
};

TEST_F(EventWaitTest, ACallStartsWhenItsEventHasCompleted) {
  FakeEvent event;
  Reply reply = Start(CallBehind(&event));
  event.AwaitQueries(20);
  EXPECT_FALSE(IsReady(reply));
  EXPECT_THAT(backend_.TakeJobLists(), IsEmpty());
  // x is read after the event, not before it.
  x_.elements[0] = 100;
  event.Complete();
  const absl::StatusOr<CallReply> got = reply.get();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_GT(got->timings.queue, absl::Microseconds(100)) << "the wait is one of the waits that the reply tells";
  EXPECT_EQ(BytesOf(got->outputs[0]), BytesOf(Run(CallTo(LayerSpec({4}), x_.View()))->outputs[0]));
}

TEST_F(EventWaitTest, AnEventThatHasCompletedIsAskedForOnce) {
  FakeEvent event;
  event.Complete();
  Reply reply = Start(CallBehind(&event));
  EXPECT_TRUE(IsReady(reply)) << "the call is small and runs inline";
  EXPECT_TRUE(reply.get().ok());
  EXPECT_EQ(event.queries(), 1);
}

TEST_F(EventWaitTest, AMistakeIsReportedBeforeTheEventHasCompleted) {
  const auto expect_refused = [this](Call call, const std::string& field) {
    FakeEvent event;
    call.events_completed = event.Asked();
    call.deadline = SteadyNow() + absl::Seconds(10);
    const absl::Status status = Start(std::move(call)).get().status();
    ASSERT_TRUE(GetErrorDetail(status).has_value()) << status;
    EXPECT_EQ(GetErrorDetail(status)->field, field);
  };
  expect_refused(CallTo(LayerSpec({5}), x_.View()), "spec.layer_norm.normalized_shape");
  Floats mean = {{4}, {0, 0, 0, 0}}, variance = {{3}, {1, 1, 1}};
  Call call = CallTo(BatchSpec(), x_.View());
  call.running_mean = mean.View();
  call.running_var = variance.View();
  expect_refused(std::move(call), "parameters.running_var");
}

// Until then its owner may write it.
TEST_F(EventWaitTest, NoTensorIsReadBeforeTheEventHasCompleted) {
  FakeEvent event;
  Floats mean = {{4}, {0, 0, 0, 0}}, variance = {{4}, {-1, 1, 1, 1}};
  Call call = CallTo(BatchSpec(), x_.View());
  call.running_mean = mean.View();
  call.running_var = variance.View();
  call.events_completed = event.Asked();
  Reply reply = Start(std::move(call));
  event.AwaitQueries(3);
  EXPECT_FALSE(IsReady(reply));
  variance.elements[0] = 1;
  event.Complete();
  EXPECT_TRUE(reply.get().ok());
}

// It may have other parameters by then.
TEST_F(EventWaitTest, ACallOfASessionIsCheckedAfterTheEvent) {
  const SessionPtr session = CreateSession("bn", BatchSpec(), 5);
  FakeEvent event;
  Call call = CallTo(session->id, x_.View());
  call.events_completed = event.Asked();
  Reply reply = Start(std::move(call));
  event.AwaitQueries(3);
  EXPECT_FALSE(IsReady(reply));
  event.Complete();
  EXPECT_EQ(GetErrorDetail(reply.get().status())->field, "x");
}

TEST_F(EventWaitTest, ACallOfASessionReadsTheSessionAfterTheEvent) {
  const SessionPtr session = CreateSession("bn", BatchSpec(), 4);
  FakeEvent event;
  Call call = CallTo(session->id, x_.View());
  call.events_completed = event.Asked();
  Reply reply = Start(std::move(call));
  event.AwaitQueries(2);
  ASSERT_TRUE(Run(CallTo(session->id, x_.View(), Mode::kTraining)).ok());
  event.Complete();
  const absl::StatusOr<CallReply> got = reply.get();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->applied.session_version, session->version + 1);
}

TEST_F(EventWaitTest, TheDeadlineAndCancellationEndTheWait) {
  FakeEvent event;
  Call late = CallBehind(&event);
  late.deadline = SteadyNow() + absl::Milliseconds(30);
  const absl::Status passed = Start(std::move(late)).get().status();
  EXPECT_EQ(passed.code(), absl::StatusCode::kDeadlineExceeded) << passed;
  EXPECT_EQ(GetErrorDetail(passed)->reason, "DEADLINE_PASSED");

  std::atomic<bool> gone = false;
  Call cancelled = CallBehind(&event);
  cancelled.cancelled = [&gone] { return gone.load(); };
  Reply reply = Start(std::move(cancelled));
  event.AwaitQueries(3);
  EXPECT_FALSE(IsReady(reply));
  gone = true;
  EXPECT_EQ(reply.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(backend_.TakeJobLists(), IsEmpty());
}

TEST_F(EventWaitTest, AnEventThatNeverCompletesEndsTheCallWithoutADeadline) {
  Engine engine(&scheduler_, &store_, &resources_, {.max_event_wait = absl::Milliseconds(30)});
  FakeEvent event;
  const absl::Status status = Start(&engine, CallBehind(&event)).get().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_EQ(GetErrorDetail(status)->reason, "CUDA_EVENT_PENDING");
  EXPECT_EQ(GetErrorDetail(status)->field, "cuda.event_handle");
  const int queries = event.queries();
  EXPECT_TRUE(Start(&engine, CallTo(LayerSpec({4}), x_.View())).get().ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(event.queries(), queries) << "a call that has ended is asked for no more";
}

TEST_F(EventWaitTest, AnErrorOfTheEventIsTheCalls) {
  FakeEvent event;
  Reply reply = Start(CallBehind(&event));
  event.AwaitQueries(2);
  event.Fail();
  EXPECT_EQ(reply.get().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Run(CallBehind(&event)).status().code(), absl::StatusCode::kUnavailable) << "at once, too";
}

TEST_F(EventWaitTest, ACallThatIsOnlyValidatedDoesNotWait) {
  FakeEvent event;
  Call call = CallBehind(&event);
  call.validate_only = true;
  EXPECT_TRUE(Run(std::move(call)).ok());
  EXPECT_EQ(event.queries(), 0);
}

TEST_F(EventWaitTest, ABatchWaitsForTheEventsOfAllItsCallsAndFailsOnlyThoseThatFail) {
  FakeEvent first, second, broken;
  broken.Fail();
  std::vector<Call> calls;
  for (FakeEvent* event : {&first, &second, &broken}) calls.push_back(CallBehind(event));
  calls.push_back(CallTo(LayerSpec({4}), x_.View()));
  const auto promise = std::make_shared<std::promise<std::vector<absl::StatusOr<CallReply>>>>();
  auto replies = promise->get_future();
  engine_.SubmitBatch(std::move(calls), [promise](auto results) { promise->set_value(std::move(results)); });
  first.Complete();
  second.AwaitQueries(20);
  EXPECT_EQ(replies.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_THAT(backend_.TakeJobLists(), IsEmpty());
  second.Complete();
  const std::vector<absl::StatusOr<CallReply>> got = replies.get();
  ASSERT_THAT(got, SizeIs(4));
  for (const size_t i : {0, 1, 3}) EXPECT_TRUE(got[i].ok()) << i << got[i].status();
  EXPECT_EQ(got[2].status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(backend_.TakeJobLists(), testing::ElementsAre(3)) << "one job list, as without events";
}

// However many calls wait, and however large they are, no other call notices.
TEST_F(EventWaitTest, OtherCallsOvertakeWaitingOnes) {
  Engine engine(&scheduler_, &store_, &resources_, {.max_large_calls = 1});
  const Floats large = {{1 << 19, 4}, std::vector<float>(1 << 21)};  // of which one at a time is computed
  FakeEvent never;
  std::atomic<bool> gone = false;
  std::vector<Reply> waiting;
  for (int i = 0; i < 200; ++i) {
    Call call = CallBehind(&never);
    if (i % 2 == 0) call.x = large.View();
    call.cancelled = [&gone] { return gone.load(); };
    waiting.push_back(Start(&engine, std::move(call)));
  }
  FakeEvent other;
  Reply behind_other = Start(&engine, CallBehind(&other));
  EXPECT_TRUE(Start(&engine, CallTo(LayerSpec({4}), x_.View())).get().ok());
  other.AwaitQueries(3);
  other.Complete();
  EXPECT_TRUE(behind_other.get().ok());
  for (const Reply& reply : waiting) EXPECT_FALSE(IsReady(reply));
  EXPECT_EQ(engine.wait_stats().waiting, 0);
  gone = true;
  for (Reply& reply : waiting) EXPECT_EQ(reply.get().status().code(), absl::StatusCode::kCancelled);
}

TEST(EventPollerTest, EntriesStartInTheOrderInWhichTheyComplete) {
  std::atomic<bool> first_completes = false;
  std::promise<void> first_started, second_started;
  EventPoller poller;  // ends before what its entries use
  poller.Wait({.completed = [&] { return first_completes.load(); }, .start = [&] { first_started.set_value(); }});
  poller.Wait({.completed = [] { return true; }, .start = [&] { second_started.set_value(); }});
  second_started.get_future().wait();
  first_completes = true;
  first_started.get_future().wait();
}

TEST(EventPollerTest, AnEntryIsPolledMoreSeldomTheLongerItWaits) {
  std::vector<absl::Time> polls;
  std::promise<void> started;
  EventPoller poller;  // ends before what its entry uses
  const absl::Time until = SteadyNow() + absl::Milliseconds(200);
  poller.Wait({.completed =
                   [&] {
                     polls.push_back(SteadyNow());
                     return polls.back() > until;
                   },
               .start = [&] { started.set_value(); }});
  started.get_future().wait();
  ASSERT_GE(polls.size(), 2u);
  EXPECT_LT(polls.size(), 150u) << "a fixed interval of 20 us would have polled thousands of times";
  const absl::Duration last = polls.back() - polls[polls.size() - 2];
  EXPECT_GE(last, EventPoller::kMaxInterval);
}

}  // namespace
}  // namespace normd
