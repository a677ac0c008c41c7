// The worker pool: as many threads at one time as were asked for, whoever leaves the work.
#include "kernels/cpu/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace normd::cpu {
namespace {

using std::chrono::steady_clock;

// Whether `count` bodies of one loop are ever inside at one time, waiting up to 10 s for each other.
bool Meet(WorkerPool& pool, int count) {
  std::atomic<int> inside = 0;
  std::atomic<bool> met = false;
  std::atomic<bool> done = false;
  pool.Enqueue(
      [&] {
        pool.ParallelFor(count, 1, [&](int64_t /*begin*/, int64_t /*end*/) {
          const auto limit = steady_clock::now() + std::chrono::seconds(10);
          if (++inside == count) met = true;
          while (!met && steady_clock::now() < limit) std::this_thread::yield();
          --inside;
        });
        done = true;
      },
      count - 1);
  while (!done) std::this_thread::yield();
  return met;
}

TEST(WorkerPoolTest, WorkLeftByOthersIsSharedByAllItsThreads) {
  for (const int threads : {1, 2, 4}) {
    WorkerPool pool(threads);
    EXPECT_TRUE(Meet(pool, threads)) << threads;
  }
}

TEST(WorkerPoolTest, ALoopIsCutTheSameWayByOneThread) {
  WorkerPool pool(1);
  int64_t covered = 0;
  pool.ParallelFor(10, 4, [&](int64_t begin, int64_t end) {
    EXPECT_LE(end - begin, 4);
    covered += end - begin;
  });
  EXPECT_EQ(covered, 10);
}

TEST(WorkerPoolTest, TasksStartInTheirOrderAndTheLastOnesRunBeforeThePoolEnds) {
  std::vector<int> order;
  {
    WorkerPool pool(1);
    for (int i = 0; i < 100; ++i) pool.Enqueue([&order, i] { order.push_back(i); }, 0);
  }
  ASSERT_EQ(order.size(), 100u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

// What one job of a list does with few large groups: loops inside a range of a loop, one after the other.
TEST(WorkerPoolTest, EveryItemOfNestedLoopsRunsOnceBeforeTheLoopReturns) {
  constexpr int kTasks = 200;
  WorkerPool pool(4);
  std::atomic<int64_t> wrong = 0;
  std::atomic<int> ended = 0;
  for (int task = 0; task < kTasks; ++task) {
    pool.Enqueue(
        [&] {
          pool.ParallelFor(3, 1, [&](int64_t /*begin*/, int64_t /*end*/) {
            std::vector<int> count(100);
            for (int pass = 1; pass <= 2; ++pass) {
              pool.ParallelFor(100, 7, [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) ++count[static_cast<size_t>(i)];
              });
              wrong += 100 - std::count(count.begin(), count.end(), pass);
            }
          });
          ++ended;
        },
        task % 5);
  }
  while (ended < kTasks) std::this_thread::yield();
  EXPECT_EQ(wrong, 0);
}

// The thread that began the outer loop has run its range and waits for the other one, which begins a loop only then.
TEST(WorkerPoolTest, AThreadThatWaitsForALoopHelpsWithTheLoopsInside) {
  for (const auto pause : {std::chrono::milliseconds(0), std::chrono::milliseconds(20)}) {
    WorkerPool pool(2);
    std::atomic<int> outer = 0, inner = 0;
    std::atomic<bool> met = false, done = false;
    pool.Enqueue(
        [&] {
          pool.ParallelFor(2, 1, [&](int64_t begin, int64_t /*end*/) {
            ++outer;
            const auto limit = steady_clock::now() + std::chrono::seconds(10);
            while (outer < 2 && steady_clock::now() < limit) std::this_thread::yield();
            if (begin == 0) return;
            std::this_thread::sleep_for(pause);
            pool.ParallelFor(2, 1, [&](int64_t /*begin*/, int64_t /*end*/) {
              if (++inner == 2) met = true;
              while (!met && steady_clock::now() < limit) std::this_thread::yield();
            });
          });
          done = true;
        },
        1);
    while (!done) std::this_thread::yield();
    EXPECT_TRUE(met) << pause.count() << " ms";
  }
}

// Whichever thread has no memory left, the loop ends when no other body runs, its caller learns of it, and the pool
// goes on.
TEST(WorkerPoolTest, ABodyThatRunsOutOfMemoryIsReportedToTheCallerOfTheLoop) {
  for (const int threads : {1, 4}) {
    WorkerPool pool(threads);
    for (int64_t failing = 0; failing < 40; ++failing) {
      std::atomic<int> inside = 0;
      bool reported = false;
      try {
        pool.ParallelFor(40, 1, [&](int64_t begin, int64_t /*end*/) {
          if (begin == failing) throw std::bad_alloc();
          ++inside;
          std::this_thread::yield();
          --inside;
        });
      } catch (const std::bad_alloc&) {
        reported = true;
        EXPECT_EQ(inside, 0);
      }
      EXPECT_TRUE(reported) << failing;
    }
    std::atomic<int> ran = 0;
    pool.ParallelFor(40, 1, [&](int64_t /*begin*/, int64_t /*end*/) { ++ran; });
    EXPECT_EQ(ran, 40);
  }
}

TEST(WorkerPoolTest, ThreadsMayUseTheCoresThatTheyMayUseAgainAfterTheyHelped) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  WorkerPool pool(2);
  std::atomic<int> narrow = 0;
  std::atomic<int> ended = 0;
  for (int i = 0; i < 50; ++i) {
    pool.Enqueue(
        [&] {
          pool.ParallelFor(8, 1, [&](int64_t /*begin*/, int64_t /*end*/) {
            cpu_set_t mine;
            if (sched_getaffinity(0, sizeof(mine), &mine) != 0 || !CPU_EQUAL(&mine, &all)) ++narrow;
          });
          ++ended;
        },
        1);
    while (ended <= i) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(200));  // the threads fall asleep
  }
  EXPECT_EQ(narrow, 0);
}

}  // namespace
}  // namespace normd::cpu
