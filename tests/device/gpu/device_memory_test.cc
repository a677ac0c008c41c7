// Tensors that lie in CUDA memory at any address: the bytes of the CPU backend, and nothing beside them is written.
#include <string>
#include <vector>

#include "tests/device/gpu/gpu_test.h"
#include "tests/kernels/cases.h"

namespace normd {
namespace {

// A job whose tensors are all in CUDA memory, each `misalignment` bytes past an aligned address.
class InCudaMemory {
 public:
  InCudaMemory(CaseRun* run, const Case& c, const CaseData& data, size_t misalignment)
      : x_(data.x, misalignment),
        residual_(data.residual, misalignment),
        y_(data.x.size(), misalignment),
        h_(data.x.size(), misalignment),
        job_(run->MakeJob()) {
    job_.x = x_.data();
    job_.y = y_.data();
    job_.x_space = job_.y_space = CudaSpace(0);
    if (!c.residual.has_value()) return;
    job_.residual.data = residual_.data();
    job_.h = h_.data();
    job_.residual.space = job_.h_space = CudaSpace(0);
  }

  const Job& job() const { return job_; }
  // `got` with y and h as they are in CUDA memory.
  Outputs Complete(Outputs got) const {
    got.y = y_.Content();
    if (!job_.h_space.is_host()) got.h = h_.Content();
    return got;
  }
  bool SurroundingsAreIntact() const { return y_.SurroundingsAreIntact() && h_.SurroundingsAreIntact(); }

 private:
  const DeviceBytes x_, residual_, y_, h_;
  Job job_;
};

class GpuDeviceMemoryTest : public GpuTest {
 protected:
  void ExpectBytesOfTheCpu(const Case& c) {
    const CaseData data = DataOf(c);
    const Outputs want = Execute(*cpu_, c, data);
    for (const size_t misalignment : {0, 1, 2, 3, 4, 6, 8, 12, 16, 100}) {
      CaseRun run(*cuda_, c, *PlanOf(c), data, 0);
      const InCudaMemory tensors(&run, c, data, misalignment);
      ASSERT_EQ(RunJobs(*cuda_, {tensors.job()}), absl::OkStatus()) << c.Name();
      EXPECT_EQ(DifferenceOf(tensors.Complete(run.TakeOutputs()), want), "") << c.Name() << " at " << misalignment;
      EXPECT_TRUE(tensors.SurroundingsAreIntact()) << c.Name() << " at " << misalignment;
    }
  }
};

TEST_F(GpuDeviceMemoryTest, RowsAtAnyAddressHaveTheBytesOfTheCpu) {
  for (const DType dtype : kAllDTypes) {
    for (const int64_t n : {1, 7, 67, 768, 4005, 40003}) {
      ExpectBytesOfTheCpu(cases::Affine(cases::With(cases::On(cases::Over({n}), {5, n}), dtype)));
    }
  }
}

TEST_F(GpuDeviceMemoryTest, ImagesAtAnyAddressHaveTheBytesOfTheCpu) {
  for (const Case& base : cases::MainBases()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) ExpectBytesOfTheCpu(cases::Affine(cases::With(base, dtype)));
  }
}

TEST_F(GpuDeviceMemoryTest, ResidualStreamsAtAnyAddressHaveTheBytesOfTheCpu) {
  for (const ResidualRounding rounding : {ResidualRounding::kRoundFirst, ResidualRounding::kKeepWide}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
      Case c = cases::Affine(cases::With(cases::On(cases::Over({1031}), {3, 1031}), dtype));
      c.residual = ResidualCase{.dtype = dtype, .scale = 0.5, .rounding = rounding};
      ExpectBytesOfTheCpu(c);
    }
  }
}

}  // namespace
}  // namespace normd
