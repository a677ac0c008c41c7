// Calls with tensors in a device's memory: where they go, what their jobs say, what is refused, and that the engine
// follows no address of the device's (the fake's cannot be accessed).
#include "server/engine/memory_space.h"

#include <cstring>
#include <functional>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "server/schedule/device_scheduler.h"
#include "tests/server/engine/fixtures.h"
#include "tests/support/fake_cuda_backend.h"

namespace normd {
namespace {

using engine_test::CallTo;
using engine_test::Floats;
using engine_test::LayerSpec;
using session_test::BatchSpec;
using session_test::PowerSpec;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class MemorySpaceTest : public ::testing::Test {
 protected:
  static constexpr int kDevice = 3;
  static constexpr int64_t kBytes = 32;

  void SetUp() override {
    const absl::StatusOr<FakeCuda::Opened> opened = cuda_.Open(handle_, kDevice);
    device_ = opened->data;
    std::memcpy(Owned(0), x_.elements.data(), kBytes);
    Session session = session_test::NewSession("bn", BatchSpec(), 4);
    ASSERT_TRUE(session_test::Create(store_, session).ok());
    session = session_test::NewSession("power", PowerSpec(1), 4);
    ASSERT_TRUE(session_test::Create(store_, session).ok());
  }
  void TearDown() override { cuda_.Close(device_); }

  // The 32 bytes number `place` of the device, as the host's address and as the device's.
  std::byte* Owned(int place) { return cuda_.Owned(handle_) + place * kBytes; }
  TensorView On(int place, int device = kDevice) const {
    TensorView view = x_.View();
    view.data = device_ + place * kBytes;
    view.space = CudaSpace(device);
    return view;
  }
  WantedOutput To(OutputKind kind, int place, int device = kDevice) const {
    WantedOutput output = kind;
    output.shared =
        SharedBytes{device_ + place * kBytes, kBytes, "r-1", static_cast<uint64_t>(place) * kBytes, CudaSpace(device)};
    return output;
  }
  absl::StatusOr<CallReply> Run(Call call) {
    std::promise<absl::StatusOr<CallReply>> promise;
    engine_.Submit(std::move(call),
                   [&promise](absl::StatusOr<CallReply> reply) { promise.set_value(std::move(reply)); });
    return promise.get_future().get();
  }
  std::string RefusedField(Call call) {
    const absl::Status status = Run(std::move(call)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    ExpectNoJobs();
    const std::optional<ErrorDetail> detail = GetErrorDetail(status);
    return detail.has_value() ? detail->field : "";
  }

  // Neither on the device nor on the CPU, since either was asked last.
  void ExpectNoJobs() {
    EXPECT_THAT(backend_.TakeJobs(), IsEmpty());
    EXPECT_THAT(cpu_.TakeJobLists(), IsEmpty());
  }

  const Floats x_ = {.shape = {2, 4}, .elements = {1, 2, 3, 4, 5, 6, 7, 9}};
  FakeCuda cuda_;
  const std::string handle_ = cuda_.Allocate(4096);
  std::byte* device_ = nullptr;
  session_test::ManualClock clock_;
  FakeCudaBackend backend_{&cuda_, kDevice, MakeCpuBackend({.threads = 2})};
  engine_test::SpyBackend cpu_;
  // To AUTO the device is too dear.
  DeviceScheduler scheduler_{&cpu_, DeviceCost(), {{.backend = &backend_, .cost = {.fixed_us = 1e9}}}, &clock_};
  MemoryStore store_{SessionLimits(), &clock_};
  Resources resources_;
  Engine engine_{&scheduler_, &store_, &resources_};
};

TEST_F(MemorySpaceTest, JobsSayWhichTensorsLieInCudaMemoryAndRunThere) {
  Call call = CallTo(LayerSpec({4}), On(0));
  call.residual = On(1);
  call.outputs = {To(OutputKind::kY, 2), To(OutputKind::kH, 3), OutputKind::kMean};
  const absl::StatusOr<CallReply> reply = Run(call);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(backend_.TakeJobs(), ElementsAre("x residual y h, device 3"));
  EXPECT_THAT(cpu_.TakeJobLists(), IsEmpty());
  EXPECT_EQ(reply->applied.device, Device::kCuda);
  EXPECT_EQ(reply->applied.kernel, "cuda/fake");
  EXPECT_EQ(reply->outputs[0].shared->offset, 64);
  EXPECT_EQ(reply->outputs[0].bytes.size_bytes(), 0) << "y has not left the device";
  EXPECT_EQ(reply->outputs[2].bytes.size_bytes(), 8) << "the mean is the host's";

  Call host = CallTo(LayerSpec({4}), x_.View());
  const Floats zeros = {.shape = {2, 4}, .elements = std::vector<float>(8)};
  host.residual = zeros.View();
  host.outputs = {OutputKind::kY, OutputKind::kH, OutputKind::kMean};
  const absl::StatusOr<CallReply> want = Run(host);
  ASSERT_TRUE(want.ok()) << want.status();
  EXPECT_THAT(backend_.TakeJobs(), IsEmpty());
  EXPECT_THAT(cpu_.TakeJobLists(), ElementsAre(1));
  EXPECT_EQ(want->applied.device, Device::kCpu);
  EXPECT_EQ(std::memcmp(Owned(2), want->outputs[0].bytes.data(), kBytes), 0);
  EXPECT_EQ(std::memcmp(Owned(3), want->outputs[1].bytes.data(), kBytes), 0);
  EXPECT_EQ(engine_test::BytesOf(reply->outputs[2]), engine_test::BytesOf(want->outputs[2]));
}

TEST_F(MemorySpaceTest, ACallThatNamesTheDeviceTakesTheHostsTensorsThere) {
  Call call = CallTo(LayerSpec({4}), x_.View());
  call.device = Device::kCuda;
  const absl::StatusOr<CallReply> reply = Run(call);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->applied.device, Device::kCuda);
  EXPECT_THAT(backend_.TakeJobs(), ElementsAre("none"));
  EXPECT_THAT(cpu_.TakeJobLists(), IsEmpty());
}

TEST_F(MemorySpaceTest, AnyOneMayLieThereAlone) {
  EXPECT_TRUE(Run(CallTo(LayerSpec({4}), On(0))).ok());
  Call call = CallTo(LayerSpec({4}), x_.View());
  call.residual = On(1);
  EXPECT_TRUE(Run(call).ok());
  call.residual = x_.View();
  call.outputs = {To(OutputKind::kY, 1), OutputKind::kH};
  EXPECT_TRUE(Run(call).ok());
  call.outputs = {OutputKind::kY, To(OutputKind::kH, 1)};
  EXPECT_TRUE(Run(call).ok());
  EXPECT_THAT(backend_.TakeJobs(), ElementsAre("x, device 3", "residual, device 3", "y, device 3", "h, device 3"));
}

TEST_F(MemorySpaceTest, YMayBeWhereXIsAndNotBesideIt) {
  Call call = CallTo(LayerSpec({4}), On(0));
  call.outputs = {To(OutputKind::kY, 0)};
  EXPECT_TRUE(Run(call).ok());
  backend_.TakeJobs();
  call.outputs[0].shared->data += 4;
  EXPECT_EQ(RefusedField(call), "outputs[0].shared");
}

TEST_F(MemorySpaceTest, MomentsAndTrainingStepsComeToTheHost) {
  Call moments = CallTo(LayerSpec({4}), On(0));
  moments.moments_only = true;
  moments.outputs = {OutputKind::kMoments};
  const absl::StatusOr<CallReply> reduced = Run(moments);
  ASSERT_TRUE(reduced.ok()) << reduced.status();
  EXPECT_EQ((*reduced->moments)[0].mean, 2.5);
  Call step = CallTo("bn", On(0), Mode::kTraining);
  step.outputs = {To(OutputKind::kY, 1)};
  const absl::StatusOr<CallReply> trained = Run(step);
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_TRUE(trained->state->result.applied);
  EXPECT_THAT(backend_.TakeJobs(), ElementsAre("x, device 3", "x y, device 3"));
}

TEST_F(MemorySpaceTest, BothPassesOfPowerNormNameTheDevice) {
  Call step = CallTo("power", On(0), Mode::kTraining);
  step.outputs = {To(OutputKind::kY, 1)};
  const absl::StatusOr<CallReply> trained = Run(step);
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_THAT(backend_.TakeJobs(), ElementsAre("x, device 3", "x y, device 3")) << "the first half writes no y";
}

TEST_F(MemorySpaceTest, TheCpuIsRefused) {
  for (const bool y_alone : {false, true}) {
    Call call = CallTo(LayerSpec({4}), y_alone ? x_.View() : On(0));
    if (y_alone) call.outputs = {To(OutputKind::kY, 1)};
    call.device = Device::kCpu;
    EXPECT_EQ(RefusedField(call), "device");
  }
}

TEST_F(MemorySpaceTest, TensorsOfDifferentDevicesAreRefused) {
  Call call = CallTo(LayerSpec({4}), On(0));
  call.residual = On(1, 4);
  EXPECT_EQ(RefusedField(call), "residual.tensor.shared");
  call.residual = On(1);
  call.outputs = {To(OutputKind::kH, 3), To(OutputKind::kY, 2, 0)};
  EXPECT_EQ(RefusedField(call), "outputs[1].shared");
  call.outputs = {To(OutputKind::kH, 3), To(OutputKind::kY, 2)};
  EXPECT_TRUE(Run(call).ok());
}

TEST_F(MemorySpaceTest, ValidationFollowsNoAddress) {
  Call call = CallTo("bn", On(0), Mode::kTraining);
  call.outputs = {To(OutputKind::kY, 1)};
  call.validate_only = true;
  EXPECT_TRUE(Run(call).ok());
  ExpectNoJobs();
}

TEST_F(MemorySpaceTest, MemoryOfADeviceThatTheServerDoesNotUseIsRefused) {
  const absl::Status status = Run(CallTo(LayerSpec({4}), On(0, 4))).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_EQ(GetErrorDetail(status)->reason, "DEVICE_NOT_AVAILABLE");
  ExpectNoJobs();
}

TEST_F(MemorySpaceTest, JobsInTheMemoryOfALostDeviceMoveNowhere) {
  backend_.fail_with = absl::UnavailableError("lost");
  Call y_alone = CallTo(LayerSpec({4}), x_.View());
  y_alone.outputs = {To(OutputKind::kY, 1)};
  EXPECT_EQ(Run(y_alone).status().code(), absl::StatusCode::kUnavailable) << "the device is lost meanwhile";
  for (const Call& call : {y_alone, CallTo(LayerSpec({4}), On(0))}) {
    const absl::Status status = Run(call).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_EQ(GetErrorDetail(status)->reason, "DEVICE_NOT_AVAILABLE");
  }
  EXPECT_THAT(backend_.TakeJobs(), ElementsAre("y, device 3"));
  EXPECT_THAT(cpu_.TakeJobLists(), IsEmpty());
  EXPECT_TRUE(Run(CallTo(LayerSpec({4}), x_.View())).ok()) << "the host's tensors are the CPU's";
}

// Whatever sends one there, it must not take the process along.
TEST_F(MemorySpaceTest, TheCpuBackendRefusesJobsInDeviceMemory) {
  const std::unique_ptr<Backend> cpu = MakeCpuBackend({.threads = 2});
  const NormPlan plan = *MakePlan(LayerSpec({4}), DType::kF32, {2, 4}, {});
  std::vector<float> y(8);
  for (const bool y_alone : {false, true}) {
    Job job;
    job.plan = &plan;
    job.x = x_.elements.data();
    job.y = y.data();
    if (y_alone) {
      job.y = device_;
      job.y_space = CudaSpace(kDevice);
    } else {
      job.x = device_;
      job.x_space = CudaSpace(kDevice);
    }
    absl::Status status;
    cpu->Submit({job}, [&status](absl::Status result) { status = std::move(result); });
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  }
}

TEST_F(MemorySpaceTest, WithoutADeviceTheCallIsRefusedBeforeAnythingRuns) {
  DeviceScheduler scheduler(&cpu_);
  Resources resources;
  Engine engine(&scheduler, &store_, &resources);
  for (const bool y_alone : {false, true}) {
    for (const bool validate_only : {false, true}) {
      Call call = CallTo(LayerSpec({4}), y_alone ? x_.View() : On(0));
      if (y_alone) call.outputs = {To(OutputKind::kY, 1)};
      call.validate_only = validate_only;
      std::promise<absl::Status> promise;
      engine.Submit(std::move(call),
                    [&promise](const absl::StatusOr<CallReply>& reply) { promise.set_value(reply.status()); });
      const absl::Status status = promise.get_future().get();
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      EXPECT_EQ(GetErrorDetail(status)->reason, "DEVICE_NOT_AVAILABLE");
    }
  }
  ExpectNoJobs();
}

}  // namespace
}  // namespace normd
