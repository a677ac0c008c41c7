// The bytes of an output depend on the tensor, the spec and nothing else: not on threads, grain, instruction set,
// alignment, the jobs that travel along or the other rows. Compared bit for bit: y, h, mean, inverse standard deviation
// and the f64 moments, of f64 tensors among others. Under EXACT the nearest value implies it, so a tenth of the cases
// is compared, and all of FAST, whose order of sums is declared. A canary shows that the comparison sees another order.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/targets.h"
#include "kernels/methods.h"
#include "tests/kernels/case_runs.h"
#include "tests/kernels/cases.h"
#include "tests/support/case.h"
#include "tests/support/random.h"
#include "tests/support/run_case.h"

namespace normd {
namespace {

// Nothing inline, and so small a grain that every case splits.
std::unique_ptr<Backend> SplitBackend(int threads, int64_t grain_elements) {
  return MakeCpuBackend({.threads = threads, .inline_elements = 0, .grain_elements = grain_elements});
}

class ForcedTarget {
 public:
  explicit ForcedTarget(const CpuTarget& target) { ForceCpuTargetForTest(target.id); }
  ~ForcedTarget() { ForceCpuTargetForTest(0); }
};

class InvarianceTest : public testing::TestWithParam<Method> {
 protected:
  const std::unique_ptr<Backend> plain_ = InlineCpuBackend();
  const std::vector<Case> cases_ = ForComparingBytes(cases::AllOf(GetParam()));
};

TEST_P(InvarianceTest, BytesDoNotDependOnThreadsOrGrain) {
  const std::unique_ptr<Backend> others[] = {SplitBackend(1, 64), SplitBackend(2, 100), SplitBackend(4, 1)};
  for (const Case& c : cases_) {
    const CaseData data = DataOf(c);
    const Outputs want = Execute(*plain_, c, data);
    for (const auto& other : others) {
      EXPECT_EQ(DifferenceOf(Execute(*other, c, data), want), "") << c.Name() << " split " << (&other - others);
    }
  }
}

TEST_P(InvarianceTest, BytesDoNotDependOnTheInstructionSet) {
  const std::vector<CpuTarget> targets = SupportedCpuTargets();
  ASSERT_FALSE(targets.empty());
  for (const Case& c : cases_) {
    const CaseData data = DataOf(c);
    const Outputs want = Execute(*plain_, c, data);
    for (const CpuTarget& target : targets) {
      const ForcedTarget forced(target);
      EXPECT_EQ(DifferenceOf(Execute(*plain_, c, data), want), "") << c.Name() << " on " << target.name;
    }
  }
}

TEST_P(InvarianceTest, BytesDoNotDependOnStreamingStores) {
  const std::unique_ptr<Backend> streaming = MakeCpuBackend({.stream_bytes = 0});
  for (const Case& c : cases_) {
    const CaseData data = DataOf(c);
    const Outputs want = Execute(*plain_, c, data);
    for (const CpuTarget& target : SupportedCpuTargets()) {
      const ForcedTarget forced(target);
      for (const int misalignment : {0, 1, 4}) {
        EXPECT_EQ(DifferenceOf(Execute(*streaming, c, data, misalignment), want), "")
            << c.Name() << " on " << target.name << " at " << misalignment;
      }
    }
  }
}

TEST_P(InvarianceTest, BytesDoNotDependOnAlignment) {
  for (const Case& c : cases_) {
    const CaseData data = DataOf(c);
    const Outputs want = Execute(*plain_, c, data);
    for (const int misalignment : {1, 4, 13}) {
      EXPECT_EQ(DifferenceOf(Execute(*plain_, c, data, misalignment), want), "") << c.Name() << " at " << misalignment;
    }
  }
}

TEST_P(InvarianceTest, BytesDoNotDependOnWhetherYIsX) {
  const std::unique_ptr<Backend> split = SplitBackend(2, 100);
  for (const Case& c : cases_) {
    const CaseData data = DataOf(c);
    const std::string want = Execute(*plain_, c, data).y;
    const absl::StatusOr<NormPlan> plan = PlanOf(c);
    ASSERT_TRUE(plan.ok());
    for (Backend* const backend : {plain_.get(), split.get()}) {
      CaseRun in_place(*backend, c, *plan, data, 0);
      Job job = in_place.MakeJob();
      std::string x = data.x;
      job.x = job.y = x.data();
      ASSERT_TRUE(RunJobs(*backend, {job}).ok());
      EXPECT_TRUE(x == want) << c.Name() << (backend == split.get() ? " split" : "");
    }
  }
}

// Without moments the squares of 16-bit rows about zero are summed in runs.
TEST_P(InvarianceTest, BytesDoNotDependOnWhetherMomentsAreWanted) {
  for (const Case& c : cases_) {
    const CaseData data = DataOf(c);
    const Outputs want = Execute(*plain_, c, data);
    const Outputs got = Execute(*plain_, c, data, 0, false);
    EXPECT_TRUE(got.y == want.y && got.inverse_std == want.inverse_std && got.h == want.h) << c.Name();
    if (c.options.given_statistics) continue;
    const absl::StatusOr<NormPlan> plan = PlanOf(c);
    ASSERT_TRUE(plan.ok());
    CaseRun alone(*plain_, c, *plan, data, 0);
    Job job = alone.MakeJob();
    job.y = nullptr;  // statistics only
    ASSERT_TRUE(RunJobs(*plain_, {job}).ok());
    EXPECT_EQ(alone.TakeOutputs().inverse_std, want.inverse_std) << c.Name() << " without y";
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, InvarianceTest, testing::ValuesIn(kAllMethods),
                         [](const auto& method) { return std::string(Info(method.param).name); });

TEST(InvarianceTargetsTest, ForcingATargetChangesWhatRuns) {
  const std::vector<CpuTarget> targets = SupportedCpuTargets();
  std::string names;
  const std::string before(ActiveCpuTargetName());
  for (const CpuTarget& target : targets) {
    const ForcedTarget forced(target);
    EXPECT_EQ(ActiveCpuTargetName(), target.name);
    names += std::string(target.name) + " ";
  }
  EXPECT_EQ(ActiveCpuTargetName(), before);
  RecordProperty("targets", names);
  EXPECT_GE(targets.size(), 2u) << "only " << names << "on this machine: nothing to compare";
}

// Jobs of all methods and dtypes in one submission, in an order of no meaning.
TEST(InvarianceBatchTest, BytesDoNotDependOnTheJobsThatTravelAlong) {
  const std::unique_ptr<Backend> plain = InlineCpuBackend();
  const std::unique_ptr<Backend> split = SplitBackend(2, 256);
  std::vector<Case> all = ForComparingBytes(cases::All());
  Random random(7);
  for (size_t i = all.size(); i > 1; --i)
    std::swap(all[i - 1], all[static_cast<size_t>(random.Below(static_cast<int64_t>(i)))]);
  constexpr size_t kUnrolled = 64;
  for (size_t begin = 0; begin < all.size(); begin += kUnrolled) {
    const size_t end = std::min(all.size(), begin + kUnrolled);
    for (Backend* backend : {plain.get(), split.get()}) {
      std::vector<CaseData> data;
      std::vector<std::unique_ptr<CaseRun>> runs;
      std::vector<Job> jobs;
      for (size_t i = begin; i < end; ++i) data.push_back(DataOf(all[i]));
      for (size_t i = begin; i < end; ++i) {
        runs.push_back(std::make_unique<CaseRun>(*backend, all[i], *PlanOf(all[i]), data[i - begin], 0));
        jobs.push_back(runs.back()->MakeJob());
      }
      ASSERT_TRUE(RunJobs(*backend, std::move(jobs)).ok());
      for (size_t i = begin; i < end; ++i) {
        const Outputs want = Execute(*plain, all[i], data[i - begin]);
        EXPECT_EQ(DifferenceOf(runs[i - begin]->TakeOutputs(), want), "") << all[i].Name();
      }
    }
  }
}

// Whether axis 0 only numbers independent rows.
bool HasIndependentRows(const Case& c) {
  if (c.shape[0] == 0 || c.mask != Mask::kNone) return false;
  if (c.options.given_statistics) return true;
  switch (c.spec.method()) {
    case Method::kBatchNorm:
    case Method::kPowerNorm:
      return false;
    case Method::kInstanceNorm:
    case Method::kGroupNorm:
      return true;
    default:
      break;
  }
  const auto rank = static_cast<int64_t>(c.shape.size());
  const std::vector<int64_t> axes = OracleSpec(c).axes;
  if (axes.empty()) return rank > 1;
  return std::none_of(axes.begin(), axes.end(), [&](int64_t axis) { return axis == 0 || axis == -rank; });
}

// The case with other rows before and after its own.
void Surround(const Case& c, const CaseData& data, Data others, Case* wide, CaseData* wide_data) {
  *wide = c;
  wide->shape[0] *= 3;
  *wide_data = data;
  const auto count = [](const std::string& bytes, DType dtype) {
    return static_cast<int64_t>(bytes.size()) / SizeOf(dtype);
  };
  const auto around = [&](const std::string& bytes, DType dtype, uint64_t seed) {
    const std::string first = MakeValues(others, dtype, count(bytes, dtype), seed);
    return first + bytes + MakeValues(Data::kNormal, dtype, count(bytes, dtype), seed + 1);
  };
  wide_data->x = around(data.x, c.dtype, 11);
  if (c.residual.has_value()) wide_data->residual = around(data.residual, c.residual->dtype, 13);
}

std::string MiddleOf(const std::string& bytes) { return bytes.substr(bytes.size() / 3, bytes.size() / 3); }

TEST(InvarianceRowsTest, BytesDoNotDependOnOtherRowsAndNoRowPoisonsAnother) {
  const std::unique_ptr<Backend> plain = InlineCpuBackend();
  const std::unique_ptr<Backend> split = SplitBackend(2, 200);
  int compared = 0;
  for (const Case& c : ForComparingBytes(cases::All())) {
    if (!HasIndependentRows(c)) continue;
    const CaseData data = DataOf(c);
    const Outputs want = Execute(*plain, c, data);
    for (const Data others : {Data::kNormal, Data::kHuge, Data::kNan, Data::kInf}) {
      Case wide;
      CaseData wide_data;
      Surround(c, data, others, &wide, &wide_data);
      const Outputs got = Execute(others == Data::kNormal ? *split : *plain, wide, wide_data);
      EXPECT_EQ(MiddleOf(got.y) == want.y, true) << c.Name() << " y";
      EXPECT_EQ(MiddleOf(got.h) == want.h, true) << c.Name() << " h";
      if (c.options.given_statistics) continue;
      EXPECT_EQ(MiddleOf(got.mean) == want.mean, true) << c.Name() << " mean";
      EXPECT_EQ(MiddleOf(got.inverse_std) == want.inverse_std, true) << c.Name() << " inverse_std";
      ++compared;
    }
  }
  EXPECT_GT(compared, 1000);
}

// The one exception: in training the rows of BatchNorm and PowerNorm make the statistics together.
TEST(InvarianceRowsTest, OtherRowsChangeTheOutputOfBatchNormAndPowerNormTraining) {
  const std::unique_ptr<Backend> backend = InlineCpuBackend();
  for (const DType dtype : kAllDTypes) {
    for (Case c : {cases::On(cases::Of(Method::kBatchNorm, Layout::kChannelsFirst), {4, 3, 5}),
                   cases::On(cases::Of(Method::kBatchNorm, Layout::kChannelsLast), {4, 5, 3}),
                   cases::On(cases::Power(1), {4, 5, 3})}) {
      c.dtype = dtype;
      const CaseData data = DataOf(c);
      Case wide;
      CaseData wide_data;
      Surround(c, data, Data::kNormal, &wide, &wide_data);
      EXPECT_NE(MiddleOf(Execute(*backend, wide, wide_data).y), Execute(*backend, c, data).y) << c.Name();
    }
  }
}

// The bytes of the elements (i / inner) % channels == channel.
std::string ChannelBytes(const std::string& y, const Case& c, int64_t channel, int64_t inner) {
  const auto size = static_cast<size_t>(SizeOf(c.dtype));
  std::string bytes;
  for (size_t i = 0; i * size < y.size(); ++i) {
    if (static_cast<int64_t>(i) / inner % 4 == channel) bytes += y.substr(i * size, size);
  }
  return bytes;
}

TEST(InvarianceRowsTest, ANanPoisonsItsChannelOrGroupAndNoOther) {
  const std::unique_ptr<Backend> backend = InlineCpuBackend();
  for (const DType dtype : kAllDTypes) {
    struct {
      Case c;
      int64_t inner, groups;
    } const tests[] = {{cases::On(cases::Of(Method::kBatchNorm, Layout::kChannelsFirst), {3, 4, 9}), 9, 4},
                       {cases::On(cases::Of(Method::kBatchNorm, Layout::kChannelsLast), {3, 9, 4}), 1, 4},
                       {cases::On(cases::Power(2), {3, 9, 4}), 1, 2}};
    for (const auto& test : tests) {
      const Case c = cases::With(test.c, dtype);
      CaseData data = DataOf(c);
      const Outputs before = Execute(*backend, c, data);
      // Element `inner` of channel 1 (of 4) becomes NaN: a quiet one has all exponent bits and the next one set.
      oracle::StoreBits(OracleType(dtype), oracle::FormatOf(OracleType(dtype)).infinity() | 1, data.x.data(),
                        test.inner);
      const Outputs after = Execute(*backend, c, data);
      for (int64_t channel = 0; channel < 4; ++channel) {
        const bool poisoned = channel / (4 / test.groups) == 1 / (4 / test.groups);
        EXPECT_EQ(ChannelBytes(after.y, c, channel, test.inner) == ChannelBytes(before.y, c, channel, test.inner),
                  !poisoned)
            << c.Name() << " channel " << channel;
      }
    }
  }
}

// Runs 64 rows of 769 f32 elements, each from its last element to its first, and returns y in the order of `data`.
Outputs ExecuteReversed(Backend& backend, const Case& c, CaseData data) {
  const auto reverse = [](std::string& bytes) {
    auto* elements = reinterpret_cast<float*>(bytes.data());
    for (int64_t row = 0; row < 64; ++row) std::reverse(elements + row * 769, elements + (row + 1) * 769);
  };
  reverse(data.x);
  Outputs outputs = Execute(backend, c, data);
  reverse(outputs.y);
  return outputs;
}

// The nearest value has no order of sums in it.
TEST(OrderOfSumsTest, DoesNotShowUnderExact) {
  const std::unique_ptr<Backend> backend = InlineCpuBackend();
  for (const Case& c : {cases::On(cases::Over({769}), {64, 769}), cases::On(cases::Of(Method::kRmsNorm), {64, 769})}) {
    const CaseData data = DataOf(c);
    EXPECT_EQ(DifferenceOf(ExecuteReversed(*backend, c, data), Execute(*backend, c, data)), "") << c.Name();
  }
}

// The canary of FAST: another order of its sums changes their last bits, and the comparison used above reports it. If
// it did not, the tests above could not fail.
TEST(OrderOfSumsTest, OfFastIsDeclaredAndAnotherOneIsCaught) {
  const std::unique_ptr<Backend> backend = InlineCpuBackend();
  for (const Case& c : {cases::Fast(cases::On(cases::Over({769}), {64, 769})),
                        cases::Fast(cases::On(cases::Of(Method::kRmsNorm), {64, 769}))}) {
    const CaseData data = DataOf(c);
    const Outputs before = Execute(*backend, c, data);
    EXPECT_EQ(DifferenceOf(Execute(*backend, c, data), before), "") << "a second run differs";
    const Outputs after = ExecuteReversed(*backend, c, data);
    EXPECT_NE(DifferenceOf(after, before), "") << c.Name();
    int rows = 0;
    for (size_t row = 0; row < 64; ++row) {
      rows += after.moments[row].m2 != before.moments[row].m2;
      EXPECT_NEAR(after.moments[row].m2, before.moments[row].m2, 0x1p-18 * before.moments[row].m2);
    }
    EXPECT_GT(rows, 16) << "of 64 rows whose sum was taken in another order, " << c.Name();
  }
}

}  // namespace
}  // namespace normd
