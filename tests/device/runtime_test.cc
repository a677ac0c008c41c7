// The CPU's CUDA refuses what CUDA refuses, counts what is not given back, and fails when it is told to.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <thread>

#include "gtest/gtest.h"
#include "tests/device/launch_once.h"
#include "tests/support/cuda_on_cpu/cuda_on_cpu.h"

namespace normd {
namespace {

class Runtime : public testing::Test {
 protected:
  Runtime() { cuda_on_cpu::Reset(); }
  ~Runtime() override {
    EXPECT_EQ(cuda_on_cpu::BytesAllocated(), 0u);
    EXPECT_EQ(cuda_on_cpu::ObjectsAlive(), 0);
    cuda_on_cpu::Reset();
  }
};

__global__ void Nothing() {}
__global__ void AddTo(int64_t* to, int64_t number, const void* unused) {
  if (unused == nullptr) *to += number;
}

TEST_F(Runtime, ArgumentsAreConvertedToTheParametersAndEveryThreadHasItsOwn) {
  int64_t sum = 0;
  ASSERT_EQ(LaunchOnce({.grid = 2, .block = 3}, AddTo, &sum, 7, nullptr), cudaSuccess);
  EXPECT_EQ(sum, 42);
  EXPECT_EQ(cuda_on_cpu::Launches(), 1);
}

TEST_F(Runtime, GridsAndBlocksOfImpossibleSizesAreRefusedAndTheErrorIsKept) {
  for (const LaunchShape& shape : {LaunchShape{.grid = 0}, LaunchShape{.grid = dim3(1, 0)}, LaunchShape{.block = 0},
                                   LaunchShape{.block = 1025}, LaunchShape{.block = dim3(32, 33)},
                                   LaunchShape{.block = dim3(1, 1, 65)}, LaunchShape{.grid = dim3(1, 65536)}}) {
    EXPECT_EQ(LaunchOnce(shape, Nothing), cudaErrorInvalidConfiguration);
    EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
  EXPECT_EQ(cuda_on_cpu::Launches(), 0);
}

TEST_F(Runtime, SharedMemoryBeyondTheDefaultIsAskedForFirst) {
  const LaunchShape shape{.block = 32, .shared_bytes = 48 * 1024 + 1};
  EXPECT_EQ(LaunchOnce({.block = 32, .shared_bytes = 48 * 1024}, Nothing), cudaSuccess);
  EXPECT_EQ(LaunchOnce(shape, Nothing), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(Nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 * 1024), cudaSuccess);
  EXPECT_EQ(LaunchOnce(shape, Nothing), cudaSuccess);
  EXPECT_EQ(LaunchOnce({.block = 32, .shared_bytes = 100 * 1024 + 1}, Nothing), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(Nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024 + 1),
            cudaErrorInvalidValue);
  cuda_on_cpu::SetDevice({.major = 8, .minor = 9, .shared_optin_bytes = 99 * 1024});
  EXPECT_EQ(LaunchOnce({.block = 32, .shared_bytes = 100 * 1024}, Nothing), cudaErrorInvalidValue);
}

TEST_F(Runtime, ClustersDivideTheGridAndNeedADeviceThatHasThem) {
  EXPECT_EQ(LaunchOnce({.grid = 6, .block = 32, .cluster = 4}, Nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(LaunchOnce({.grid = 16, .block = 32, .cluster = 8}, Nothing), cudaSuccess);
  EXPECT_EQ(LaunchOnce({.grid = 16, .block = 32, .cluster = 16}, Nothing), cudaErrorInvalidClusterSize);
  EXPECT_EQ(cudaFuncSetAttribute(Nothing, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), cudaSuccess);
  EXPECT_EQ(LaunchOnce({.grid = 16, .block = 32, .cluster = 16}, Nothing), cudaSuccess);
  EXPECT_EQ(LaunchOnce({.grid = 32, .block = 32, .cluster = 32}, Nothing), cudaErrorInvalidClusterSize);
  cuda_on_cpu::SetDevice({.major = 8, .minor = 0});
  EXPECT_EQ(LaunchOnce({.grid = 16, .block = 32, .cluster = 2}, Nothing), cudaErrorNotSupported);
  EXPECT_EQ(LaunchOnce({.grid = 16, .block = 32}, Nothing), cudaSuccess);
}

TEST_F(Runtime, MemoryIsCountedLimitedAndFullOfJunk) {
  cuda_on_cpu::SetDevice({.memory_bytes = 1000});
  unsigned char* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 600), cudaSuccess);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(device) % 256, 0u);
  EXPECT_NE(device[0], 0);
  EXPECT_NE(device[599], 0);
  unsigned char* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, 401), cudaErrorMemoryAllocation);
  EXPECT_EQ(more, nullptr);
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  EXPECT_EQ(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
  EXPECT_EQ(free_bytes, 400u);
  EXPECT_EQ(total_bytes, 1000u);
  unsigned char* pinned = nullptr;
  ASSERT_EQ(cudaHostAlloc(&pinned, 5000, cudaHostAllocPortable), cudaSuccess);
  EXPECT_EQ(cuda_on_cpu::BytesAllocated(), 5600u);
  EXPECT_EQ(cudaFree(pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(device + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFree(device), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, 8), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(Runtime, CopiesStayInsideAllocationsAndGoWhereTheySay) {
  unsigned char* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 8), cudaSuccess);
  unsigned char host[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(cudaMemcpy(device, host, 8, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(device, device + 4, 4, cudaMemcpyDeviceToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemset(device + 1, 9, 1), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(device + 7, 0, 1), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(host, device, 8, cudaMemcpyDefault), cudaSuccess);
  const unsigned char expected[8] = {5, 9, 7, 8, 5, 6, 7, 0};
  EXPECT_EQ(std::memcmp(host, expected, 8), 0);
  EXPECT_EQ(cudaMemcpy(device + 1, host, 8, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device, host, 8, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host, host, 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(device, 0, 9), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
}

TEST_F(Runtime, PointersAreKnownByWhereTheyPoint) {
  unsigned char* device = nullptr;
  unsigned char* pinned = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 8), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, 8), cudaSuccess);
  cudaPointerAttributes attributes = {};
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, device + 7), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 0);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, pinned), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, &attributes), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(Runtime, HandlesOpenTheAllocationThatTheyWereMadeOfAndNoOther) {
  unsigned char* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 8), cudaSuccess);
  cudaIpcMemHandle_t handle = {};
  ASSERT_EQ(cudaIpcGetMemHandle(&handle, device + 3), cudaSuccess);
  void* opened = nullptr;
  ASSERT_EQ(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess), cudaSuccess);
  EXPECT_EQ(opened, device);
  EXPECT_EQ(cuda_on_cpu::ObjectsAlive(), 1);
  EXPECT_EQ(cudaIpcCloseMemHandle(opened), cudaSuccess);
  EXPECT_EQ(cudaIpcCloseMemHandle(opened), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess), cudaErrorInvalidResourceHandle);
  handle = {};
  EXPECT_EQ(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess), cudaErrorInvalidResourceHandle);
}

TEST_F(Runtime, OnlyAnInterprocessEventHasAHandleAndWhatItOpensSharesItsRecord) {
  cudaEvent_t event = nullptr;
  cudaIpcEventHandle_t handle = {};
  EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventInterprocess), cudaErrorInvalidValue) << "it would be timed";
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  EXPECT_EQ(cudaIpcGetEventHandle(&handle, event), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess), cudaSuccess);
  ASSERT_EQ(cudaIpcGetEventHandle(&handle, event), cudaSuccess);
  cudaEvent_t opened = nullptr;
  ASSERT_EQ(cudaIpcOpenEventHandle(&opened, handle), cudaSuccess);
  EXPECT_NE(opened, event);
  cuda_on_cpu::HoldEvents(true);
  EXPECT_EQ(cudaEventQuery(opened), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(opened), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle) << "not ready is no error";
  cuda_on_cpu::HoldEvents(false);
  EXPECT_EQ(cudaEventQuery(opened), cudaSuccess);
  EXPECT_EQ(cuda_on_cpu::ObjectsAlive(), 2);
  EXPECT_EQ(cudaEventDestroy(opened), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaIpcOpenEventHandle(&opened, handle), cudaErrorInvalidResourceHandle);
}

TEST_F(Runtime, StreamsAndEventsKeepTheirRules) {
  cudaStream_t stream = nullptr;
  cudaEvent_t start = nullptr;
  cudaEvent_t end = nullptr;
  cudaEvent_t untimed = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&start), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&end, cudaEventBlockingSync), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming), cudaSuccess);
  EXPECT_EQ(cuda_on_cpu::ObjectsAlive(), 4);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(start, stream), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(end), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(untimed, stream), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream, end), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(end), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(end), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaSuccess);
  EXPECT_GE(milliseconds, 0);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, untimed), cudaErrorInvalidResourceHandle);
  for (const cudaEvent_t event : {start, end, untimed}) EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(end), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaMemsetAsync(nullptr, 0, 0, stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
}

TEST_F(Runtime, EachThreadHasACurrentDeviceAndAStreamTakesLaunchesOnItsOwnOnly) {
  cuda_on_cpu::SetDeviceCount(2);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  EXPECT_FALSE(cuda_on_cpu::HasContext(1));
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_TRUE(cuda_on_cpu::HasContext(1));
  int device = -1;
  std::thread([&device] { cudaGetDevice(&device); }).join();
  EXPECT_EQ(device, 0);
  EXPECT_EQ(LaunchOnce({.grid = 1, .block = 1, .stream = stream}, Nothing), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(LaunchOnce({.grid = 1, .block = 1, .stream = stream}, Nothing), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(Runtime, TheDeviceSaysWhatTheTestMadeIt) {
  cuda_on_cpu::SetDevice({.major = 8, .minor = 9, .sms = 7, .shared_optin_bytes = 99 * 1024, .memory_bytes = 1000});
  int count = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 1);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(1), cudaErrorInvalidDevice);
  int device = -1;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 0);
  cudaDeviceProp properties = {};
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  EXPECT_EQ(properties.major * 10 + properties.minor, 89);
  EXPECT_EQ(properties.totalGlobalMem, 1000u);
  EXPECT_STRNE(properties.name, "");
  const auto attribute = [](cudaDeviceAttr which) {
    int value = -1;
    EXPECT_EQ(cudaDeviceGetAttribute(&value, which, 0), cudaSuccess);
    return value;
  };
  EXPECT_EQ(attribute(cudaDevAttrComputeCapabilityMajor), 8);
  EXPECT_EQ(attribute(cudaDevAttrComputeCapabilityMinor), 9);
  EXPECT_EQ(attribute(cudaDevAttrMultiProcessorCount), properties.multiProcessorCount);
  EXPECT_EQ(attribute(cudaDevAttrMultiProcessorCount), 7);
  EXPECT_EQ(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin), 99 * 1024);
  EXPECT_EQ(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin), static_cast<int>(properties.sharedMemPerBlockOptin));
  EXPECT_EQ(attribute(cudaDevAttrL2CacheSize), properties.l2CacheSize);
  EXPECT_EQ(attribute(cudaDevAttrMaxSharedMemoryPerBlock), 48 * 1024);
  int driver = 0;
  int runtime = 0;
  EXPECT_EQ(cudaDriverGetVersion(&driver), cudaSuccess);
  EXPECT_EQ(cudaRuntimeGetVersion(&runtime), cudaSuccess);
  EXPECT_GE(driver, runtime);
}

TEST_F(Runtime, AnInjectedFaultComesOnceAtItsCall) {
  cuda_on_cpu::FailCalls("cudaMalloc", 1, cudaErrorMemoryAllocation, false);
  void* memory[3] = {};
  EXPECT_EQ(cudaMalloc(&memory[0], 8), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&memory[1], 8), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&memory[2], 8), cudaSuccess);
  cuda_on_cpu::FailCalls("cudaLaunchKernelEx", 0, cudaErrorLaunchOutOfResources, false);
  EXPECT_EQ(LaunchOnce({.block = 1}, Nothing), cudaErrorLaunchOutOfResources);
  EXPECT_EQ(LaunchOnce({.block = 1}, Nothing), cudaSuccess);
  EXPECT_EQ(cuda_on_cpu::Launches(), 1);
  EXPECT_EQ(cudaFree(memory[0]), cudaSuccess);
  EXPECT_EQ(cudaFree(memory[2]), cudaSuccess);
}

TEST_F(Runtime, ALostDeviceFailsEveryCallAndForgetsWhatIsGivenBack) {
  void* memory = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 8), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  cuda_on_cpu::FailCalls("cudaStreamSynchronize", 1, cudaErrorIllegalAddress, true);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(LaunchOnce({.block = 1}, Nothing), cudaErrorIllegalAddress);
  int count = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorIllegalAddress);
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, 8), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaEventDestroy(event), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaFree(memory), cudaErrorIllegalAddress);
}

TEST_F(Runtime, ErrorsHaveTheNamesAndWordsOfCuda) {
  EXPECT_STREQ(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorInvalidValue), "invalid argument");
  EXPECT_STREQ(cudaGetErrorString(static_cast<cudaError_t>(12345)), "unrecognized error code");
  EXPECT_EQ(cudaErrorIllegalAddress, 700);
}

}  // namespace
}  // namespace normd
