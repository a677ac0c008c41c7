// The worker pool: as many threads at one time as were asked for, whoever leaves the work.
#include "kernels/cpu/parallel.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "gtest/gtest.h"

namespace normd::cpu {
namespace {

using std::chrono::steady_clock;

// Whether `count` bodies of one loop are ever inside at one time, waiting up to 10 s for each other.
bool Meet(WorkerPool& pool, int count) {
  std::atomic<int> inside = 0;
  std::atomic<bool> met = false;
  std::atomic<bool> done = false;
  pool.Enqueue([&] {
    pool.ParallelFor(count, 1, [&](int64_t /*begin*/, int64_t /*end*/) {
      const auto limit = steady_clock::now() + std::chrono::seconds(10);
      if (++inside == count) met = true;
      while (!met && steady_clock::now() < limit) std::this_thread::yield();
      --inside;
    });
    done = true;
  });
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

}  // namespace
}  // namespace normd::cpu
