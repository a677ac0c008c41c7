// Tensors of over 2^31 elements on a real GPU: no index, offset or number of rows is kept in 32 bits. Runs with
// NORMD_TEST_FULL=1 (tests/device/run.sh --full) only: 18 GiB of memory, 10 GiB of the device's, and a minute.
#include <cstring>
#include <string>
#include <vector>

#include "tests/device/gpu/gpu_test.h"
#include "tests/kernels/cases.h"
#include "tests/support/environment.h"

namespace normd {
namespace {

constexpr int64_t kElements = (int64_t{1} << 31) + 7;  // 45 * 47721859
constexpr int64_t kShort = 45;

class GpuLargeTest : public GpuTest {
 protected:
  void SetUp() override {
    if (Environment("NORMD_TEST_FULL").empty()) GTEST_SKIP() << "NOT RUN: long; set NORMD_TEST_FULL=1";
    GpuTest::SetUp();
    if (IsSkipped()) return;
    // Many lanes would share what is free.
    cuda_.reset();
    auto backend = MakeCudaBackend({.streams = 1, .max_device_bytes = int64_t{12} << 30});
    ASSERT_TRUE(backend.ok()) << backend.status();
    cuda_ = *std::move(backend);
  }

  // y of `c` on a backend; the values repeat with a period that is no divisor of any extent.
  std::string Run(Backend& backend, const Case& c) {
    const NormPlan plan = *PlanOf(c);
    const std::string pattern = MakeValues(Data::kNormal, c.dtype, 65537, 1);
    std::string x(static_cast<size_t>(plan.elements * SizeOf(c.dtype)), '\0');
    for (size_t at = 0; at < x.size(); at += pattern.size()) {
      std::memcpy(&x[at], pattern.data(), std::min(pattern.size(), x.size() - at));
    }
    std::string y(x.size(), '\xA5');
    Job job;
    job.plan = &plan;
    job.x = x.data();
    job.y = y.data();
    EXPECT_EQ(RunJobs(backend, {job}), absl::OkStatus()) << c.Name();
    return y;
  }
  void ExpectBytesOfTheCpu(Case c, Precision precision) {
    c.dtype = DType::kBF16;
    c.options.precision = precision;
    const std::string got = Run(*cuda_, c);
    EXPECT_TRUE(got == Run(*MakeCpuBackend({}), c)) << c.Name();  // not EXPECT_EQ: it would print gigabytes
  }
};

TEST_F(GpuLargeTest, OneRowOfOver2To31ElementsHasTheBytesOfTheCpu) {
  ExpectBytesOfTheCpu(cases::On(cases::Of(Method::kRmsNorm), {1, kElements}), Precision::kExact);
}

TEST_F(GpuLargeTest, ShortRowsOfOver2To31ElementsHaveTheBytesOfTheCpu) {
  ExpectBytesOfTheCpu(cases::On(cases::Over({kShort}), {kElements / kShort, kShort}), Precision::kFast);
}

TEST_F(GpuLargeTest, ColumnsOfOver2To31ElementsHaveTheBytesOfTheCpu) {
  ExpectBytesOfTheCpu(cases::On(cases::Of(Method::kBatchNorm, Layout::kChannelsLast), {kElements / kShort, kShort}),
                      Precision::kFast);
}

}  // namespace
}  // namespace normd
