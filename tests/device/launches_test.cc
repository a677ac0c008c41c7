// How many kernels a call starts, for each kernel family: a launch costs microseconds, which small tensors take as a
// whole. The emulated device counts them; copies and what fills memory with zeros are not kernels.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/device.h"
#include "tests/device/device_runs.h"
#include "tests/kernels/cases.h"

namespace normd {
namespace {

using cases::Affine;
using cases::Of;
using cases::On;
using cases::Over;
using cases::With;

// The launches of one kind of call. `moments`: where they are wanted beside y.
struct Row {
  std::string family;
  Case c;
  int64_t exact = 0, exact_moments = 0;
  int64_t fast = 0, fast_moments = 0;
};

Case Image(const NormSpec& base, Layout layout, int64_t n, int64_t channels, int64_t side, bool given = false) {
  return Affine(With(On(base, cases::Nchw(layout, n, channels, {side, side}), given), DType::kBF16), DType::kF32,
                DType::kF32);
}
Case RowsOf(const NormSpec& base, int64_t n, DType dtype = DType::kBF16) { return With(On(base, {7, n}), dtype); }
Case Masked(Case c) {
  c.mask = Mask::kSome;
  return c;
}
Case WithResidual(Case c, ResidualRounding rounding) {
  c.residual = ResidualCase{.dtype = c.dtype, .rounding = rounding};
  return c;
}

// Under FAST, rows that fit on chip are one launch, and so are groups of several segments that do, and few small groups
// of several columns. Other groups are three: sums of parts; statistics, with sums of the few groups that are summed
// again; elements. Where statistics are given there are no sums, and the blocks that write elements finish the groups.
// EXACT has one launch for rows that a block can hold, and else one for each step, the bounds of groups among them;
// moments of narrow elements are summed in pairs, from a copy in f64. f64 elements, which are always EXACT, are
// measured first. PowerNorm is the host's.
std::vector<Row> Table() {
  const NormSpec layer = Over({64});
  const NormSpec rms = Of(Method::kRmsNorm);
  std::vector<Row> table = {
      {"rows of 64", RowsOf(layer, 64), 1, 9, 1, 1},
      {"rows of 4,096", RowsOf(Over({4096}), 4096), 1, 9, 1, 1},
      {"rows of 16,384 f32", RowsOf(Over({16384}), 16384, DType::kF32), 1, 9, 1, 1},
      {"rows that fit in a cluster alone", RowsOf(Over({300000}), 300000), 4, 12, 1, 1},
      {"rows that do not fit on chip", RowsOf(Over({300001}), 300001), 4, 12, 3, 3},
      {"16-bit rows about zero", RowsOf(rms, 4096), 1, 7, 1, 1},
      {"16-bit rows about zero that do not fit on chip", RowsOf(rms, 300000), 4, 10, 3, 3},
      {"16-bit rows, residual rounded first", WithResidual(RowsOf(rms, 4096), ResidualRounding::kRoundFirst), 1, 8, 1,
       1},
      // h is rounded by itself.
      {"16-bit rows, residual kept wide", WithResidual(RowsOf(rms, 4096), ResidualRounding::kKeepWide), 8, 8, 7, 7},
      {"f64 rows about a mean", RowsOf(layer, 64, DType::kF64), 8, 8, 8, 8},
      {"f64 rows about zero", RowsOf(rms, 64, DType::kF64), 6, 6, 6, 6},
      {"PowerNorm", On(cases::Power(2), {9, 6}), 0, 0, 0, 0},
  };
  for (const Layout layout : cases::kLayouts) {
    const bool first = layout == Layout::kChannelsFirst;
    const std::string name = first ? ", NCHW" : ", NHWC";
    const auto add = [&](const std::string& family, Case c, int64_t exact, int64_t exact_moments, int64_t fast) {
      table.push_back({family + name, std::move(c), exact, exact_moments, fast, fast});
    };
    const NormSpec batch = Of(Method::kBatchNorm, layout);
    // Those with channels first fit on chip, unless a piece of memory is no whole number of vectors.
    add("BatchNorm training", Image(batch, layout, 2, 16, 14), 4, 12, first ? 1 : 3);
    add("BatchNorm training, odd", Image(batch, layout, 2, 15, 13), 4, 12, 3);
    add("BatchNorm training, too large", Image(batch, layout, 2, 1, 1024), 4, 12, 3);
    add("BatchNorm training, masked", Masked(Image(batch, layout, 2, 16, 14)), 4, 12, 3);
    add("BatchNorm inference", Image(batch, layout, 2, 16, 14, true), 3, 3, 1);
    add("BatchNorm inference f32", With(Image(batch, layout, 2, 16, 14, true), DType::kF32), 3, 3, 1);
    add("BatchNorm inference, a few channels of a few elements", Image(batch, layout, 2, 3, 2, true), 3, 3, 2);
    // Groups with channels first are rows. Those with channels last are one launch, too, if they are small and few.
    const int64_t exact = first ? 1 : 4, exact_moments = first ? 9 : 12;
    add("GroupNorm", Image(cases::Group(4, layout), layout, 1, 32, 14), exact, exact_moments, 1);
    add("GroupNorm of many groups", Image(cases::Group(4, layout), layout, 9, 32, 4), exact, exact_moments,
        first ? 1 : 3);
  }
  return table;
}

TEST(LaunchesTest, AreThoseOfTheTable) {
  cuda_on_cpu::Reset();
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  for (const Row& row : Table()) {
    for (const bool fast : {false, true}) {
      for (const bool moments : {false, true}) {
        Case c = row.c;
        c.options.precision = fast ? Precision::kFast : Precision::kExact;
        const int64_t before = cuda_on_cpu::Launches();
        Execute(*cuda, c, DataOf(c), 0, moments);
        const int64_t want = fast ? (moments ? row.fast_moments : row.fast) : moments ? row.exact_moments : row.exact;
        EXPECT_EQ(cuda_on_cpu::Launches() - before, want)
            << row.family << (fast ? ", FAST" : ", EXACT") << (moments ? ", with moments" : "");
      }
    }
  }
}

void Kernel() {}

TEST(LaunchesTest, MoreBlocksThanAGridMayHaveAreRefusedInsteadOfCutOff) {
  cuda_on_cpu::Reset();
  EXPECT_EQ(cuda::Launch({.blocks = (int64_t{1} << 32) + 1, .threads = 32}, nullptr, Kernel),
            cudaErrorInvalidConfiguration);
  EXPECT_EQ(cuda_on_cpu::Launches(), 0);
  EXPECT_EQ(cuda::Launch({.blocks = 1, .threads = 32}, nullptr, Kernel), cudaSuccess);
}

TEST(LaunchesTest, RowsOfOneKindShareOneWithTheirMoments) {
  cuda_on_cpu::Reset();
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  const Case c = cases::Fast(RowsOf(Of(Method::kRmsNorm), 96));
  const NormPlan plan = *PlanOf(c);
  const CaseData data = DataOf(c);
  std::vector<std::unique_ptr<CaseRun>> runs;
  std::vector<Job> jobs;
  for (int i = 0; i < 9; ++i) {
    jobs.push_back(runs.emplace_back(std::make_unique<CaseRun>(*cuda, c, plan, data, 0))->MakeJob());
    ASSERT_NE(jobs.back().moments, nullptr);
  }
  const int64_t before = cuda_on_cpu::Launches();
  ASSERT_TRUE(RunJobs(*cuda, jobs).ok());
  EXPECT_EQ(cuda_on_cpu::Launches() - before, 1);
}

// ComputeMoments: nothing but moments is wanted.
TEST(LaunchesTest, MomentsAloneNeedNoElements) {
  cuda_on_cpu::Reset();
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  for (const auto& [n, want] : std::vector<std::pair<int64_t, int64_t>>{{96, 1}, {300000, 2}}) {
    const Case c = cases::Fast(RowsOf(Over({n}), n));
    const NormPlan plan = *PlanOf(c);
    const CaseData data = DataOf(c);
    CaseRun run(*cuda, c, plan, data, 0);
    Job job = run.MakeJob();
    job.y = job.mean = job.inverse_std = nullptr;
    const int64_t before = cuda_on_cpu::Launches();
    ASSERT_TRUE(RunJobs(*cuda, {job}).ok());
    EXPECT_EQ(cuda_on_cpu::Launches() - before, want) << n;
  }
}

}  // namespace
}  // namespace normd
