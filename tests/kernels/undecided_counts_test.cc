// How many elements the slow road decided, by pairs of f64 and by exact integers, and of how many groups the
// statistics.
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

// The rows of a job with MEAN and INV_STD, whose statistics the slow road decided.
int64_t GroupsCounted(const NormSpec& spec, DType dtype, double bound_factor) {
  constexpr int64_t kRows = 33, kLength = 64;
  Random random(11);
  cases::Values x(static_cast<size_t>(kRows * kLength));
  for (double& value : x) value = 0.3 + random.Normal();
  UndecidedCounts counts;
  const std::unique_ptr<Backend> backend =
      MakeCpuBackend({.threads = 1, .nearest = {.bound_factor = bound_factor, .counts = &counts}});
  const cases::Call call(spec, dtype, {kRows, kLength}, x);
  CaseRun run(*backend, call.c, *PlanOf(call.c), call.data, 0);
  Job job = run.MakeJob();
  job.moments = nullptr;  // which take sums of their own
  EXPECT_TRUE(RunJobs(*backend, {job}).ok());
  return counts.groups;
}

TEST(UndecidedCountsTest, StatisticsOfRowsAreDecidedByTheirBounds) {
  for (const NormSpec& spec : {cases::Over({64}), cases::Of(Method::kRmsNorm), cases::Of(Method::kScaleNorm)}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      EXPECT_EQ(GroupsCounted(spec, dtype, 1), 0) << Name(dtype);
      EXPECT_EQ(GroupsCounted(spec, dtype, kInf), 33) << Name(dtype);
    }
  }
}

}  // namespace
}  // namespace normd
