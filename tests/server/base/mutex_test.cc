#include "server/base/mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace normd {
namespace {

struct Counter {
  Mutex mu;
  CondVar changed;
  int value ABSL_GUARDED_BY(mu) = 0;
};

TEST(Mutex, KeepsIncrementsOfSeveralThreadsApart) {
  Counter counter;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&counter] {
      for (int i = 0; i < 10'000; ++i) {
        MutexLock lock(counter.mu);
        ++counter.value;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(counter.mu);
  EXPECT_EQ(counter.value, 40'000);
}

TEST(CondVar, WakesTheThreadThatWaitsAndGivesTheMutexBack) {
  Counter counter;
  std::thread other([&counter] {
    MutexLock lock(counter.mu);
    counter.value = 1;
    counter.changed.Signal();
    while (counter.value != 2) counter.changed.Wait(counter.mu);
    counter.value = 3;
    counter.changed.SignalAll();
  });
  {
    MutexLock lock(counter.mu);
    while (counter.value != 1) counter.changed.Wait(counter.mu);
    counter.value = 2;
    counter.changed.Signal();
    while (counter.value != 3) counter.changed.Wait(counter.mu);
  }
  other.join();
  MutexLock lock(counter.mu);
  EXPECT_EQ(counter.value, 3);
}

TEST(CondVar, ReportsATimeout) {
  Counter counter;
  MutexLock lock(counter.mu);
  // Spurious wake-ups are allowed, though not for ever.
  bool woken = true;
  for (int i = 0; i < 100 && woken; ++i) woken = counter.changed.WaitFor(counter.mu, absl::Milliseconds(1));
  EXPECT_FALSE(woken);
}

}  // namespace
}  // namespace normd
