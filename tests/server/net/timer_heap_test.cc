#include "server/net/timer_heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

namespace normd::net {
namespace {

TEST(TimerHeapTest, TimersRunInTheOrderOfTheirTimesAndCancelledOnesDoNot) {
  std::mt19937 random(7);
  net::TimerHeap heap;
  std::vector<int> ran;
  std::vector<std::unique_ptr<net::Timer>> timers;
  std::vector<int> times;
  for (int i = 0; i < 500; ++i) {
    timers.push_back(std::make_unique<net::Timer>([&ran, &times, i] { ran.push_back(times[static_cast<size_t>(i)]); }));
    times.push_back(static_cast<int>(random() % 1000));
    heap.Set(timers.back().get(), absl::FromUnixSeconds(times.back()));
  }
  std::vector<int> wanted;
  for (size_t i = 0; i < timers.size(); ++i) {
    if (i % 3 == 0) heap.Cancel(timers[i].get());
    if (i % 3 == 1) heap.Set(timers[i].get(), absl::FromUnixSeconds(times[i] = static_cast<int>(random() % 1000)));
    if (i % 3 != 0 && times[i] <= 700) wanted.push_back(times[i]);
  }
  std::sort(wanted.begin(), wanted.end());
  heap.RunDue(absl::FromUnixSeconds(700));
  EXPECT_EQ(ran, wanted);
  EXPECT_GT(heap.next(), absl::FromUnixSeconds(700));
  heap.RunDue(absl::FromUnixSeconds(1000));
  EXPECT_EQ(heap.next(), absl::InfiniteFuture());
}

TEST(TimerHeapTest, ATimerMaySetAndCancelTimersWhenItRuns) {
  net::TimerHeap heap;
  int runs = 0;
  net::Timer other([] { FAIL(); });
  net::Timer again([&] {
    heap.Cancel(&other);
    if (++runs < 3) heap.Set(&again, absl::FromUnixSeconds(runs));
  });
  heap.Set(&again, absl::FromUnixSeconds(0));
  heap.Set(&other, absl::FromUnixSeconds(1));
  heap.RunDue(absl::FromUnixSeconds(10));
  EXPECT_EQ(runs, 3);
  EXPECT_FALSE(other.is_set());
}

}  // namespace
}  // namespace normd::net
