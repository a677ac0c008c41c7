#include "server/base/work_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>

namespace normd {
namespace {

constexpr int64_t kLargeWork = WorkPool::kLargeBytes;

// Where `bytes` of work run when they are handed over by this thread.
std::thread::id ThreadOf(WorkPool& pool, int64_t bytes) {
  const auto ran = std::make_shared<std::promise<std::thread::id>>();
  pool.RunIfLarge(bytes, [ran] { ran->set_value(std::this_thread::get_id()); });
  return ran->get_future().get();
}

TEST(WorkPoolTest, TakesLargeWorkOffTheCallingThreadAndNoOther) {
  WorkPool pool(2);
  EXPECT_EQ(ThreadOf(pool, kLargeWork - 1), std::this_thread::get_id());
  EXPECT_NE(ThreadOf(pool, kLargeWork), std::this_thread::get_id());
}

TEST(WorkPoolTest, AThreadOfThePoolGoesOnByItself) {
  std::promise<bool> same;  // outlives the pool, whose thread may not be done with it
  WorkPool pool(2);
  pool.Run([&] { same.set_value(ThreadOf(pool, kLargeWork) == std::this_thread::get_id()); });
  EXPECT_TRUE(same.get_future().get());
}

TEST(WorkPoolTest, RunsWorkOnTheCallersThreadWhenItIsFull) {
  std::promise<void> started, go_on;
  std::atomic<bool> waited{false};
  WorkPool pool(1, /*max_waiting=*/1);
  pool.Run([&] {
    started.set_value();
    go_on.get_future().wait();
  });
  started.get_future().wait();
  pool.Run([&waited] { waited = true; });  // waits
  EXPECT_EQ(ThreadOf(pool, kLargeWork), std::this_thread::get_id());
  EXPECT_FALSE(waited);
  go_on.set_value();
}

TEST(WorkPoolTest, RunsWaitingWorkBeforeItEnds) {
  std::atomic<int> ran{0};
  {
    WorkPool pool(1);
    for (int i = 0; i < 100; ++i) pool.Run([&ran] { ++ran; });
  }
  EXPECT_EQ(ran, 100);
}

}  // namespace
}  // namespace normd
