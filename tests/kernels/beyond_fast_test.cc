// Groups of a FAST job that f32 does not serve have the bytes of EXACT, and the groups beside them those of FAST: in
// rows, channels and columns, beside x and in its place, and split. In place they take copies of no more than
// themselves.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "tests/kernels/allocated_bytes.h"
#include "tests/kernels/call.h"
#include "tests/kernels/case_runs.h"
#include "tests/support/constants.h"
#include "tests/support/random.h"

namespace normd {
namespace {

using cases::Call;
using cases::Values;

constexpr int64_t kMixedGroups = 35, kOfMixedGroup = 96;

// Groups of normal numbers, of which each third is huge, tiny, or zero, or has an Inf.
// Element i of group g is at g * group_step + i * element_step.
Values MixedGroups(int64_t group_step, int64_t element_step) {
  Random random(17);
  Values x(static_cast<size_t>(kMixedGroups * kOfMixedGroup));
  for (int64_t g = 0; g < kMixedGroups; ++g) {
    for (int64_t i = 0; i < kOfMixedGroup; ++i) {
      double value = 0.3 + random.Normal();
      if (g % 12 == 1) value *= 1e30;
      if (g % 12 == 4) value *= 1e-30;
      if (g % 12 == 7) value = 0;
      if (g % 12 == 10 && i == 70) value = kInf;
      x[static_cast<size_t>(g * group_step + i * element_step)] = value;
    }
  }
  return x;
}
bool IsMixedBeyond(int64_t group) { return group % 3 == 1; }

// A job, and where its groups lie.
struct MixedJob {
  Call call;
  int64_t group_step, element_step;

  std::string BytesOf(const std::string& y, int64_t group) const {
    const auto size = static_cast<size_t>(SizeOf(call.c.dtype));
    std::string bytes;
    for (int64_t i = 0; i < kOfMixedGroup; ++i) {
      bytes += y.substr(static_cast<size_t>(group * group_step + i * element_step) * size, size);
    }
    return bytes;
  }
  // Two equal groups of these bytes, as they lie in memory.
  std::string Twice(const std::string& bytes) const {
    if (element_step == 1) return bytes + bytes;
    const auto size = static_cast<size_t>(SizeOf(call.c.dtype));
    std::string both;
    for (size_t at = 0; at < bytes.size(); at += size) both += bytes.substr(at, size) + bytes.substr(at, size);
    return both;
  }
};

std::vector<MixedJob> MixedJobs(DType dtype) {
  NormSpec first = cases::Of(Method::kBatchNorm), last = first, middle = cases::Axes(Method::kRmsNorm, {0});
  SetLayout(&first, Layout::kChannelsFirst);
  SetLayout(&last, Layout::kChannelsLast);
  middle.eps = 0;
  NormSpec rows = cases::Over({kOfMixedGroup}), squares = cases::Spec(Method::kRmsNorm, 0);
  const Values in_rows = MixedGroups(kOfMixedGroup, 1), in_columns = MixedGroups(1, kMixedGroups);
  std::vector<MixedJob> all = {{Call(rows, dtype, {kMixedGroups, kOfMixedGroup}, in_rows), kOfMixedGroup, 1},
                               {Call(squares, dtype, {kMixedGroups, kOfMixedGroup}, in_rows), kOfMixedGroup, 1},
                               {Call(first, dtype, {1, kMixedGroups, kOfMixedGroup}, in_rows), kOfMixedGroup, 1},
                               {Call(last, dtype, {kOfMixedGroup, kMixedGroups}, in_columns), 1, kMixedGroups},
                               {Call(middle, dtype, {kOfMixedGroup, kMixedGroups}, in_columns), 1, kMixedGroups}};
  for (MixedJob& groups : all) {
    if (groups.call.c.spec.method() == Method::kBatchNorm) groups.call.c.options.mode = Mode::kTraining;
  }
  return all;
}

class BeyondFastTest : public testing::TestWithParam<DType> {};

TEST_P(BeyondFastTest, HasTheBytesOfExactAndTheOthersThoseOfFast) {
  for (MixedJob& groups : MixedJobs(GetParam())) {
    const Outputs exact = groups.call.In(Precision::kExact).Result();
    const Outputs fast = groups.call.In(Precision::kFast).Result();
    int64_t others = 0;
    for (int64_t g = 0; g < kMixedGroups; ++g) {
      const bool same = groups.BytesOf(fast.y, g) == groups.BytesOf(exact.y, g);
      const auto at = static_cast<size_t>(g);
      if (IsMixedBeyond(g)) {
        EXPECT_TRUE(same) << groups.call.c.Name() << " group " << g;
        EXPECT_EQ(fast.inverse_std.substr(at * 4, 4), exact.inverse_std.substr(at * 4, 4)) << g;
      }
      others += !IsMixedBeyond(g) && fast.moments[at].m2 != exact.moments[at].m2 ? 1 : 0;
    }
    EXPECT_GT(others, kMixedGroups / 2) << "groups have sums in f32";
  }
}

TEST_P(BeyondFastTest, DependsOnNoOtherGroupAndNoWayOfRunning) {
  const std::unique_ptr<Backend> plain = InlineCpuBackend();
  const std::unique_ptr<Backend> split = MakeCpuBackend({.threads = 2, .inline_elements = 0, .grain_elements = 500});
  for (MixedJob& groups : MixedJobs(GetParam())) {
    const Case& c = groups.call.In(Precision::kFast).c;
    const std::string want = Execute(*plain, c, groups.call.data).y;
    for (Backend* const backend : {plain.get(), split.get()}) {
      EXPECT_TRUE(Execute(*backend, c, groups.call.data, 1).y == want) << c.Name();
      CaseRun in_place(*backend, c, *PlanOf(c), groups.call.data, 0);
      Job job = in_place.MakeJob();
      std::string x = groups.call.data.x;
      job.x = job.y = x.data();
      ASSERT_TRUE(RunJobs(*backend, {job}).ok());
      EXPECT_TRUE(x == want) << c.Name() << " in place";
    }
    // Each group beside itself: one column alone is a row.
    for (int64_t g = 0; g < kMixedGroups; ++g) {
      Call two = groups.call;
      for (int64_t& extent : two.c.shape) extent = extent == kMixedGroups ? 2 : extent;
      two.data.x = groups.Twice(groups.BytesOf(groups.call.data.x, g));
      EXPECT_TRUE(two.Result().y == groups.Twice(groups.BytesOf(want, g))) << c.Name() << " group " << g;
    }
  }
}

// Such jobs are run as under EXACT from the start.
TEST_P(BeyondFastTest, TakesWholeJobsThatHaveNoFormInF32) {
  Call weights(cases::Over({kOfMixedGroup}), GetParam(), {kMixedGroups, kOfMixedGroup}, MixedGroups(kOfMixedGroup, 1));
  weights.c.weight = DType::kF64;
  weights.data.weight = cases::Pack(DType::kF64, Values(kOfMixedGroup, 0x1p+200));
  Call positions(cases::Axes(Method::kLayerNorm, {0}), GetParam(), {kOfMixedGroup, kMixedGroups},
                 MixedGroups(1, kMixedGroups));
  positions.Weight(Values(kOfMixedGroup, 1.25));
  Call wide(cases::Over({kOfMixedGroup}), GetParam(), {kMixedGroups, kOfMixedGroup}, MixedGroups(kOfMixedGroup, 1));
  wide.c.residual = ResidualCase{GetParam(), 0.5, ResidualRounding::kKeepWide};
  wide.data.residual = wide.data.x;
  for (Call* const call : {&weights, &positions, &wide}) {
    const Outputs exact = call->In(Precision::kExact).Result();
    EXPECT_EQ(DifferenceOf(call->In(Precision::kFast).Result(), exact), "") << call->c.Name();
  }
}

// BatchNorm over channels, half of which are beyond FAST: huge and all zeros, or of a tiny variance that is given.
Call MixedChannels(Layout layout, DType dtype, bool given) {
  constexpr int64_t kBatch = 64, kChannels = 64, kLength = 9;
  Random random(23);
  Values x, mean, variance, weight, bias;
  const bool is_last = layout == Layout::kChannelsLast;
  for (int64_t i = 0; i < kBatch * kChannels * kLength; ++i) {
    const int64_t channel = is_last ? i % kChannels : i / kLength % kChannels;
    const double value = 0.3 + random.Normal();
    x.push_back(given || channel % 2 == 0 ? value : channel % 4 == 1 ? value * 1e30 : 0);
  }
  for (int64_t channel = 0; channel < kChannels; ++channel) {
    mean.push_back(random.Normal());
    variance.push_back(channel % 2 == 0 ? 0.5 : 1e-40);
    weight.push_back(random.Normal());
    bias.push_back(random.Normal());
  }
  NormSpec spec = cases::Of(Method::kBatchNorm);
  SetLayout(&spec, layout);
  spec.eps = 0;
  const std::vector<int64_t> shape =
      is_last ? std::vector<int64_t>{kBatch, kLength, kChannels} : std::vector<int64_t>{kBatch, kChannels, kLength};
  Call call(spec, dtype, shape, x, given);
  if (given) {
    call.Given(mean, variance);
  } else {
    call.c.options.mode = Mode::kTraining;
  }
  return call.Weight(weight).Bias(bias).In(Precision::kFast);
}

// The outputs of a run, y in the place of x, and the bytes that it allocated.
struct CountedRun {
  Outputs outputs;
  int64_t bytes = 0;
};
CountedRun RunCountingBytes(Backend& backend, const Call& call, bool in_place) {
  CaseRun run(backend, call.c, *PlanOf(call.c), call.data, 0);
  Job job = run.MakeJob();
  std::string x = call.data.x;
  if (in_place) job.x = job.y = x.data();
  const int64_t before = AllocatedBytes();
  EXPECT_TRUE(RunJobs(backend, {job}).ok());
  CountedRun counted = {.outputs = {}, .bytes = AllocatedBytes() - before};
  counted.outputs = run.TakeOutputs();
  if (in_place) counted.outputs.y = x;
  return counted;
}

TEST_P(BeyondFastTest, CopiesInPlaceNoMoreThanItsGroups) {
  const std::unique_ptr<Backend> backend = InlineCpuBackend();
  for (const Layout layout : cases::kLayouts) {
    const Call call = MixedChannels(layout, GetParam(), false);
    const int64_t beside = RunCountingBytes(*backend, call, false).bytes;
    const int64_t in_place = RunCountingBytes(*backend, call, true).bytes;
    EXPECT_LE(in_place - beside, 2 * static_cast<int64_t>(call.data.x.size())) << call.c.Name();
  }
}

TEST_P(BeyondFastTest, HasTheSameOutputsInPlace) {
  for (const double bound_factor : {1.0, kInf}) {  // of infinity, the slow road decides every element
    const std::unique_ptr<Backend> backend = MakeCpuBackend({.threads = 1, .nearest = {.bound_factor = bound_factor}});
    for (const Layout layout : cases::kLayouts) {
      for (const bool given : {false, true}) {
        const Call call = MixedChannels(layout, GetParam(), given);
        const Outputs beside = RunCountingBytes(*backend, call, false).outputs;
        EXPECT_EQ(DifferenceOf(RunCountingBytes(*backend, call, true).outputs, beside), "")
            << call.c.Name() << " given " << given;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, BeyondFastTest, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& dtype) { return std::string(Name(dtype.param)); });

}  // namespace
}  // namespace normd
