// The CUDA backend with its kernels emulated on the CPU: every byte is that of the CPU backend, EXACT and, where f32
// serves, FAST, in any order of threads and blocks, on every architecture, from the shortest rows to those that no
// block can hold. The CPU backend is judged by the oracle, so these are, too. Groups of FAST that f32 does not serve
// are held to FAST's bound (tests/device/beside_cpu.h).
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/nearest_jobs.h"
#include "kernels/methods.h"
#include "tests/device/beside_cpu.h"
#include "tests/device/device_runs.h"
#include "tests/device/shapes.h"
#include "tests/kernels/cases.h"

namespace normd {
namespace {

// True if kernels have something to do.
bool RunsOnDevice(Backend& cuda, const Case& c, const CaseData& data) {
  CaseRun run(cuda, c, *PlanOf(c), data, 0);
  const Job job = run.MakeJob();
  return !data.x.empty() && !(GivesNearest(job) && cuda::RunsOnHost(job));
}

class DeviceAgreementTest : public testing::TestWithParam<Method> {
 protected:
  DeviceAgreementTest() { cuda_on_cpu::Reset(); }
  const std::unique_ptr<Backend> cpu_ = InlineCpuBackend();
};

TEST_P(DeviceAgreementTest, BytesOfEveryCaseAreThoseOfTheCpu) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  uint64_t seed = 0;
  int64_t launches = 0;
  for (const Case& c : cases::AllOf(GetParam())) {
    cuda_on_cpu::SetSeed(seed++);
    const CaseData data = DataOf(c);
    EXPECT_EQ(WrongBesideCpu(*cpu_, c, data, Execute(*cuda, c, data)), "") << c.Name();
    if (RunsOnDevice(*cuda, c, data)) {
      EXPECT_GT(cuda_on_cpu::Launches(), launches) << c.Name();
    }
    launches = cuda_on_cpu::Launches();
  }
}

TEST_P(DeviceAgreementTest, AlignmentOfHostTensorsDoesNotMatter) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  const std::vector<Case> all = cases::AllOf(GetParam());
  for (size_t i = 0; i < all.size(); i += 7) {
    const CaseData data = DataOf(all[i]);
    const Outputs got = Execute(*cuda, all[i], data, 1 + static_cast<int>(i % 60));
    EXPECT_EQ(WrongBesideCpu(*cpu_, all[i], data, got), "") << all[i].Name();
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, DeviceAgreementTest, testing::ValuesIn(kAllMethods),
                         [](const auto& method) { return std::string(Info(method.param).name); });

class DeviceShapesTest : public testing::TestWithParam<cuda_on_cpu::Device> {
 protected:
  DeviceShapesTest() {
    cuda_on_cpu::Reset();
    cuda_on_cpu::SetDevice(GetParam());
  }
  void ExpectBytesOfTheCpu(const std::vector<Case>& all, bool moments = true) {
    const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
    uint64_t seed = 0;
    for (const Case& c : all) {
      cuda_on_cpu::SetSeed(seed++);
      const CaseData data = DataOf(c);
      EXPECT_EQ(WrongBesideCpu(*cpu_, c, data, Execute(*cuda, c, data, 0, moments), moments), "") << c.Name();
    }
  }
  const std::unique_ptr<Backend> cpu_ = InlineCpuBackend();
};

TEST_P(DeviceShapesTest, LongRowsHaveTheBytesOfTheCpu) { ExpectBytesOfTheCpu(shapes::LongRows()); }
TEST_P(DeviceShapesTest, ImagesHaveTheBytesOfTheCpu) { ExpectBytesOfTheCpu(shapes::Images()); }
TEST_P(DeviceShapesTest, ChannelsLastGroupsHaveTheBytesOfTheCpu) { ExpectBytesOfTheCpu(shapes::ChannelsLastGroups()); }
TEST_P(DeviceShapesTest, ShortSegmentsHaveTheBytesOfTheCpu) { ExpectBytesOfTheCpu(shapes::ShortSegments()); }
TEST_P(DeviceShapesTest, TilesHaveTheBytesOfTheCpu) {
  // Few multiprocessors have a tile in one block, many in as many blocks as have something to do.
  for (const int sms : {1, 12, 100}) {
    cuda_on_cpu::Device device = GetParam();
    device.sms = sms;
    cuda_on_cpu::SetDevice(device);
    ExpectBytesOfTheCpu(shapes::Tiles());
  }
}
TEST_P(DeviceShapesTest, LargeGroupsHaveTheBytesOfTheCpu) {
  for (const int sms : {2, 100}) {
    cuda_on_cpu::Device device = GetParam();
    device.sms = sms;
    cuda_on_cpu::SetDevice(device);
    ExpectBytesOfTheCpu(shapes::LargeGroups());
  }
}
TEST_P(DeviceShapesTest, ElementsHaveTheBytesOfTheCpu) { ExpectBytesOfTheCpu(shapes::Elements()); }
TEST_P(DeviceShapesTest, SumsInF32HaveTheBytesOfTheCpu) {
  std::vector<Case> all;
  for (const std::vector<Case>& some :
       {shapes::LongRows(), shapes::ShortSegments(), shapes::Elements(), shapes::Residuals(),
        cases::AllOf(Method::kRmsNorm), cases::AllOf(Method::kPRmsNorm), cases::AllOf(Method::kScaleNorm),
        cases::AllOf(Method::kLpNorm)}) {
    const std::vector<Case> about_zero = shapes::AboutZero(some);
    all.insert(all.end(), about_zero.begin(), about_zero.end());
  }
  ASSERT_GT(all.size(), 100u);
  ExpectBytesOfTheCpu(all, false);
}
TEST_P(DeviceShapesTest, ManyPositionsHaveTheBytesOfTheCpu) { ExpectBytesOfTheCpu(shapes::ManyPositions()); }
TEST_P(DeviceShapesTest, ManyPartsHaveTheBytesOfTheCpu) { ExpectBytesOfTheCpu(shapes::ManyParts()); }
TEST_P(DeviceShapesTest, FoldedColumnsHaveTheBytesOfTheCpu) {
  cuda_on_cpu::Device device = GetParam();
  device.sms = 1;  // which few blocks of threads fill
  cuda_on_cpu::SetDevice(device);
  ExpectBytesOfTheCpu(shapes::FoldedColumns());
}
TEST_P(DeviceShapesTest, HardImagesHaveTheBytesOfTheCpu) { ExpectBytesOfTheCpu(shapes::HardImages()); }
TEST_P(DeviceShapesTest, ResidualStreamsHaveTheBytesOfTheCpu) { ExpectBytesOfTheCpu(shapes::Residuals()); }

// The rule of beside_cpu.h can fail: an element that both sum in f32 may not move at all, one beyond f32 by no more
// than FAST's bound, and under EXACT none may.
TEST(BesideCpuTest, FindsTheBitThatFastAndExactDoNotAllow) {
  const std::unique_ptr<Backend> cpu = InlineCpuBackend();
  const auto wrong = [&](Precision precision, Data data_kind, uint32_t bits) {
    Case c = cases::With(cases::On(cases::Over({67}), {3, 67}), DType::kF32, data_kind);
    c.options.precision = precision;
    const CaseData data = DataOf(c);
    Outputs moved = Execute(*cpu, c, data);
    uint32_t element = 0;
    std::memcpy(&element, moved.y.data() + 4 * 50, sizeof(element));
    element ^= bits;
    std::memcpy(moved.y.data() + 4 * 50, &element, sizeof(element));
    return WrongBesideCpu(*cpu, c, data, moved);
  };
  for (const Data data : {Data::kNormal, Data::kHuge}) {
    EXPECT_EQ(wrong(Precision::kFast, data, 0), "");
    EXPECT_NE(wrong(Precision::kFast, data, 1 << 20), "");
    EXPECT_NE(wrong(Precision::kExact, data, 1), "");
  }
  EXPECT_NE(wrong(Precision::kFast, Data::kNormal, 1), "");
  EXPECT_EQ(wrong(Precision::kFast, Data::kHuge, 1), "");
}

INSTANTIATE_TEST_SUITE_P(Architectures, DeviceShapesTest, testing::Values(kSm80, kSm89, kSm90), [](const auto& device) {
  return "sm_" + std::to_string(device.param.major) + std::to_string(device.param.minor);
});

}  // namespace
}  // namespace normd
