#include "server/base/fifo.h"

#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace normd {
namespace {

TEST(FifoTest, IsADequeWhateverComesAndGoes) {
  std::mt19937_64 random(20261128);
  Fifo<int> queue;
  std::deque<int> expected;
  for (int step = 0; step < 20'000; ++step) {
    // Fills up to some hundred items, and then empties.
    const bool adds = random() % 100 < (step / 1000 % 2 == 0 ? 60 : 40);
    if (adds || expected.empty()) {
      queue.push_back(step);
      expected.push_back(step);
    } else {
      queue.pop_front();
      expected.pop_front();
    }
    ASSERT_EQ(queue.empty(), expected.empty());
    ASSERT_THAT(std::vector<int>(queue.begin(), queue.end()), ::testing::ElementsAreArray(expected));
    if (expected.empty()) continue;
    ASSERT_EQ(queue.front(), expected.front());
    ASSERT_EQ(queue.back(), expected.back());
  }
  queue.clear();
  EXPECT_TRUE(queue.empty());
}

TEST(FifoTest, ItemsEndWhenTheyAreRemoved) {
  Fifo<std::shared_ptr<int>> queue;
  const auto one = std::make_shared<int>(1), two = std::make_shared<int>(2);
  queue.push_back(one);
  queue.push_back(two);
  queue.pop_front();
  EXPECT_EQ(one.use_count(), 1);
  EXPECT_EQ(two.use_count(), 2);
  queue.clear();
  EXPECT_EQ(two.use_count(), 1);
}

}  // namespace
}  // namespace normd
