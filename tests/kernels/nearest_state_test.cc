// The exact oracle of running statistics beside the one of 113 bits, and where 113 bits or a step of f64 would not do.
#include "tests/support/nearest_state.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/support/constants.h"
#include "tests/support/nearest.h"
#include "tests/support/random.h"

namespace normd::oracle {
namespace {

const Spec kBatchOfColumns = {.method = Method::kBatch, .channels_last = true};

TEST(NearestStateTest, ATieGoesToTheEvenNumber) {
  // (1 + 1 + 2^-52) / 2 lies midway between 1 and the next number.
  const Input input = {.type = Type::kF64, .shape = {2, 1}, .x = {1 + PowerOfTwo(-52), 1 + PowerOfTwo(-52)}};
  RunningValues state = RunningValues::Initial(1);
  state.mean = {1};
  ASSERT_TRUE(StepNearest(kBatchOfColumns, input, {.momentum = 0.5}, state));
  EXPECT_TRUE(state.mean[0] == 1);
  EXPECT_TRUE(state.var[0] == 0.5) << "half of 1, and of a variance of 0";
  EXPECT_EQ(state.version, 1u);
  // A sixth of an ulp more decides.
  state.mean = {1};
  Input more = input;
  more.shape = {3, 1};
  more.x = {1 + PowerOfTwo(-52), 1 + PowerOfTwo(-52), 1 + PowerOfTwo(-51)};
  ASSERT_TRUE(StepNearest(kBatchOfColumns, more, {.momentum = 0.5}, state));
  EXPECT_TRUE(state.mean[0] == 1 + PowerOfTwo(-52));
}

TEST(NearestStateTest, OneThirdIsExact) {
  // The third batch of a cumulative average: 2/3 * 3 + 1/3 * 6 is 4, whatever 1/3 rounds to.
  RunningValues state = RunningValues::Initial(1);
  state.mean = {3};
  state.var = {0.75};
  state.num_batches = 2;
  const Input input = {.type = Type::kF32, .shape = {2, 1}, .x = {5, 7}};
  ASSERT_TRUE(StepNearest(kBatchOfColumns, input, {.cumulative = true}, state));
  EXPECT_TRUE(state.mean[0] == 4);
  EXPECT_TRUE(state.var[0] == Round(Type::kF64, Wide(3.5) / 3)) << "(2 * 0.75 + 2) / 3";
}

TEST(NearestStateTest, RefusesWhatIsNotFiniteAndKeepsWhatIsEmpty) {
  RunningValues state = RunningValues::Initial(1);
  EXPECT_FALSE(StepNearest(kBatchOfColumns, {.shape = {2, 1}, .x = {1, kInf}}, {}, state));
  EXPECT_EQ(state.version, 0u);
  EXPECT_TRUE(StepNearest(kBatchOfColumns, {.shape = {2, 1}, .x = {1, 2}, .mask = {0, 0}}, {}, state));
  EXPECT_EQ(state.num_batches, 1u);
  EXPECT_TRUE(state.mean[0] == 0 && state.var[0] == 1);
  EXPECT_TRUE(StepNearest(kBatchOfColumns, {.shape = {2, 1}, .x = {1, 9}, .mask = {1, 0}}, {.momentum = 1}, state));
  EXPECT_TRUE(state.mean[0] == 1 && state.var[0] == 1) << "one value has no unbiased variance";
}

// Every rule, both methods: the f64 nearest to the 113-bit result, which a middle does not come near by chance.
TEST(NearestStateTest, AgreesWith113Bits) {
  Random random(5);
  const RunningRule rules[] = {
      {}, {.momentum = 0.9, .momentum_of_old = true}, {.cumulative = true}, {.momentum = 0.3, .biased = true}};
  for (const RunningRule& rule : rules) {
    for (const Method method : {Method::kBatch, Method::kInstance}) {
      RunningValues state = RunningValues::Initial(4);
      for (int step = 0; step < 20; ++step) {
        Input input = {.type = step % 2 == 0 ? Type::kF32 : Type::kF64, .shape = {3, 4, 11}};
        for (int i = 0; i < 3 * 4 * 11; ++i) input.x.push_back(Round(input.type, 5 + random.Normal()));
        std::vector<BatchStatistics> batch;
        for (const GroupStatistics& group : Compute({.method = method}, input).groups) {
          batch.push_back({group.count, group.mean, group.m2 / group.count});
        }
        RunningValues wide = state;
        ASSERT_TRUE(StepInstanceNorm(rule, batch, wide));
        ASSERT_TRUE(StepNearest({.method = method}, input, rule, state));
        EXPECT_EQ(state.num_batches, wide.num_batches);
        for (size_t c = 0; c < 4; ++c) {
          EXPECT_TRUE(state.mean[c] == Round(Type::kF64, wide.mean[c])) << step;
          EXPECT_TRUE(state.var[c] == Round(Type::kF64, wide.var[c])) << step;
        }
      }
    }
  }
}

}  // namespace
}  // namespace normd::oracle
