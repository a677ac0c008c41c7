// How many elements the slow road decided, by pairs of f64 and by exact integers.
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "tests/kernels/call.h"
#include "tests/support/constants.h"
#include "tests/support/random.h"
#include "tests/support/run_case.h"

namespace normd {
namespace {

constexpr int64_t kCountedElements = 6 * 40;

cases::Call CountedCall() {
  Random random(7);
  cases::Values x;
  for (int64_t i = 0; i < kCountedElements; ++i) x.push_back(random.Normal());
  return {{.attributes = LayerNormSpec{.normalized_shape = {40}}}, DType::kF32, {6, 40}, x};
}

// Runs a call with these options, whose counts are `counts`.
void RunCounted(NearestOptions options, UndecidedCounts* counts) {
  options.counts = counts;
  const std::unique_ptr<Backend> backend = MakeCpuBackend({.threads = 1, .nearest = options});
  const cases::Call call = CountedCall();
  CaseRun run(*backend, call.c, *PlanOf(call.c), call.data, 0);
  EXPECT_TRUE(RunJobs(*backend, {run.MakeJob()}).ok());
}

TEST(UndecidedCountsTest, ElementsAreCountedByWhatDecidedThem) {
  UndecidedCounts by_pairs, by_integers;
  RunCounted({.bound_factor = kInf}, &by_pairs);
  EXPECT_EQ(by_pairs.by_pairs, kCountedElements);
  EXPECT_EQ(by_pairs.by_integers, 0);
  RunCounted({.bound_factor = kInf, .exact_first = true}, &by_integers);
  EXPECT_EQ(by_integers.by_pairs, 0);
  EXPECT_EQ(by_integers.by_integers, kCountedElements);
}

TEST(UndecidedCountsTest, WhatTheKernelsDecideIsNotCounted) {
  UndecidedCounts counts;
  RunCounted({}, &counts);
  EXPECT_EQ(counts.by_pairs + counts.by_integers, 0);
}

TEST(UndecidedCountsTest, RowsOfOneElementAreDecidedByTheKernels) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    UndecidedCounts counts;
    const std::unique_ptr<Backend> backend = MakeCpuBackend({.threads = 1, .nearest = {.counts = &counts}});
    const cases::Call call = {
        {.attributes = LayerNormSpec{.normalized_shape = {1}}}, dtype, {4, 1}, cases::Values{1, -0.1, 1e30, 3}};
    CaseRun run(*backend, call.c, *PlanOf(call.c), call.data, 0);
    ASSERT_TRUE(RunJobs(*backend, {run.MakeJob()}).ok());
    EXPECT_EQ(counts.by_pairs + counts.by_integers, 0);
  }
}

}  // namespace
}  // namespace normd
