// Memory and events that are opened by IPC handle, on the emulated device: kernels read and write the memory where it
// lies, an event says when its latest record has completed, and a handle that is no good leaves nothing open. Where an
// allocation ends is said by the test, as the emulated runtime has no driver.
#include "kernels/cuda/ipc.h"

#include <cuda_runtime.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "kernels/cuda/allocation_size.h"
#include "tests/device/device_runs.h"
#include "tests/kernels/cases.h"

namespace normd {
namespace {

absl::StatusOr<int64_t> size_behind_handle = 0;  // for one test at a time

}  // namespace

absl::StatusOr<int64_t> CudaBytesFrom(const void* /*data*/) { return size_behind_handle; }

namespace {

class DeviceIpcTest : public testing::Test {
 protected:
  DeviceIpcTest() {
    cuda_on_cpu::Reset();
    objects_ = cuda_on_cpu::ObjectsAlive();
  }
  ~DeviceIpcTest() override { EXPECT_EQ(cuda_on_cpu::ObjectsAlive(), objects_); }

  static std::string HandleOf(void* memory) {
    cudaIpcMemHandle_t handle;
    EXPECT_EQ(cudaIpcGetMemHandle(&handle, memory), cudaSuccess);
    return std::string(reinterpret_cast<const char*>(&handle), sizeof(handle));
  }
  static std::string HandleOf(cudaEvent_t event) {
    cudaIpcEventHandle_t handle;
    EXPECT_EQ(cudaIpcGetEventHandle(&handle, event), cudaSuccess);
    return std::string(reinterpret_cast<const char*>(&handle), sizeof(handle));
  }

 private:
  int64_t objects_ = 0;
};

TEST_F(DeviceIpcTest, JobsRunOnMemoryThatWasOpened) {
  const std::unique_ptr<Backend> cpu = InlineCpuBackend();
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend();
  const Case c = cases::Affine(cases::With(cases::On(cases::Over({1000}), {7, 1000}), DType::kBF16));
  const absl::StatusOr<NormPlan> plan = PlanOf(c);
  ASSERT_TRUE(plan.ok());
  const CaseData data = DataOf(c);
  const size_t size = data.x.size();
  void* allocation = nullptr;
  ASSERT_EQ(cudaMalloc(&allocation, 2 * size), cudaSuccess);
  std::memcpy(allocation, data.x.data(), size);
  size_behind_handle = static_cast<int64_t>(2 * size);

  const absl::StatusOr<CudaIpcMemory> opened = OpenCudaIpc(HandleOf(allocation), 0);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->size_bytes, static_cast<int64_t>(2 * size));
  CaseRun run(*cuda, c, *plan, data, 0);
  Job job = run.MakeJob();
  job.x = opened->data;
  job.y = static_cast<char*>(opened->data) + size;
  job.x_space = job.y_space = CudaSpace(0);
  ASSERT_TRUE(RunJobs(*cuda, {job}).ok());
  EXPECT_EQ(std::string(static_cast<char*>(allocation) + size, size), Execute(*cpu, c, data).y);

  EXPECT_TRUE(CloseCudaIpc(opened->data, 0).ok());
  cudaFree(allocation);
}

TEST_F(DeviceIpcTest, AHandleThatIsNoGoodLeavesNothingOpen) {
  const auto refusal = [](const std::string& handle, int device) {
    return std::string(OpenCudaIpc(handle, device).status().message());
  };
  EXPECT_NE(refusal("short", 0).find("5 bytes instead of 64"), std::string::npos);
  EXPECT_NE(refusal(std::string(64, 'x'), 0).find("cuda.ipc_handle"), std::string::npos);
  void* allocation = nullptr;
  ASSERT_EQ(cudaMalloc(&allocation, 100), cudaSuccess);
  const std::string handle = HandleOf(allocation);
  EXPECT_NE(refusal(handle, 3).find("cuda.device"), std::string::npos);
  for (const char* api : {"cudaSetDevice", "cudaIpcOpenMemHandle", "cudaPointerGetAttributes"}) {
    cuda_on_cpu::FailCalls(api, 0, cudaErrorUnknown, false);
    EXPECT_EQ(OpenCudaIpc(handle, 0).status().code(), absl::StatusCode::kUnavailable) << api;
    cuda_on_cpu::Reset();
  }
  size_behind_handle = absl::UnavailableError("the driver does not say");
  EXPECT_EQ(refusal(handle, 0), "the driver does not say");
  cudaFree(allocation);
}

TEST_F(DeviceIpcTest, AnEventIsCompletedWhenItsLatestRecordIs) {
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess), cudaSuccess);
  const absl::StatusOr<void*> opened = OpenCudaIpcEvent(HandleOf(event), 0);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const absl::StatusOr<void*> again = OpenCudaIpcEvent(HandleOf(event), 0);
  ASSERT_TRUE(again.ok()) << "each registration opens the event for itself: " << again.status();
  const auto completed = [](void* which) {
    const absl::StatusOr<bool> answer = IsCudaIpcEventCompleted(which, 0);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() && *answer;
  };
  EXPECT_TRUE(completed(*opened)) << "it was never recorded";
  cuda_on_cpu::HoldEvents(true);
  EXPECT_TRUE(completed(*opened));
  ASSERT_EQ(cudaEventRecord(event, nullptr), cudaSuccess);
  EXPECT_FALSE(completed(*opened));
  EXPECT_FALSE(completed(*again));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the next launch on this thread must not find the answer";
  EXPECT_TRUE(CloseCudaIpcEvent(*again, 0).ok()) << "whether or not it has completed";
  cuda_on_cpu::HoldEvents(false);
  EXPECT_TRUE(completed(*opened));

  cuda_on_cpu::FailCalls("cudaEventQuery", 0, cudaErrorUnknown, false);
  EXPECT_EQ(IsCudaIpcEventCompleted(*opened, 0).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_TRUE(CloseCudaIpcEvent(*opened, 0).ok());
  EXPECT_FALSE(IsCudaIpcEventCompleted(*opened, 0).ok());
  cudaEventDestroy(event);
}

TEST_F(DeviceIpcTest, AHandleOfNoEventLeavesNothingOpen) {
  const auto refusal = [](const std::string& handle, int device) {
    return std::string(OpenCudaIpcEvent(handle, device).status().message());
  };
  EXPECT_NE(refusal("short", 0).find("cuda.event_handle"), std::string::npos);
  EXPECT_NE(refusal("short", 0).find("5 bytes instead of 64"), std::string::npos);
  EXPECT_NE(refusal(std::string(64, 'x'), 0).find("cuda.event_handle"), std::string::npos);
  void* allocation = nullptr;
  ASSERT_EQ(cudaMalloc(&allocation, 100), cudaSuccess);
  EXPECT_NE(refusal(HandleOf(allocation), 0).find("cuda.event_handle"), std::string::npos) << "it names memory";
  cudaFree(allocation);
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess), cudaSuccess);
  const std::string handle = HandleOf(event);
  EXPECT_NE(refusal(handle, 3).find("cuda.device"), std::string::npos);
  for (const char* api : {"cudaSetDevice", "cudaIpcOpenEventHandle"}) {
    cuda_on_cpu::FailCalls(api, 0, cudaErrorUnknown, false);
    EXPECT_EQ(OpenCudaIpcEvent(handle, 0).status().code(), absl::StatusCode::kUnavailable) << api;
    cuda_on_cpu::Reset();
  }
  cudaEventDestroy(event);
  EXPECT_NE(refusal(handle, 0).find("cuda.event_handle"), std::string::npos) << "the event is gone";
}

// A context takes hundreds of MiB of its device, which the server may not even use.
TEST_F(DeviceIpcTest, NoOtherDeviceGetsAContext) {
  cuda_on_cpu::SetDeviceCount(2);
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess), cudaSuccess);
  const std::string handle = HandleOf(event);
  std::thread([&handle] {
    const absl::StatusOr<void*> opened = OpenCudaIpcEvent(handle, 1);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_TRUE(IsCudaIpcEventCompleted(*opened, 1).ok());
    EXPECT_TRUE(CloseCudaIpcEvent(*opened, 1).ok());
    EXPECT_FALSE(OpenCudaIpc(std::string(64, 'x'), 1).ok());
    EXPECT_FALSE(CloseCudaIpc(nullptr, 1).ok());
  }).join();
  EXPECT_TRUE(cuda_on_cpu::HasContext(1));
  EXPECT_FALSE(cuda_on_cpu::HasContext(0));
  cudaEventDestroy(event);
}

}  // namespace
}  // namespace normd
