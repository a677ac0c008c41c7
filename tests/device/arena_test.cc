// Memory that a lane's jobs share: what was kept for one job never stands in the way of another that fits the limit.
#include "kernels/cuda/arena.h"

#include <cuda_runtime.h>

#include <cstring>

#include "gtest/gtest.h"
#include "tests/support/constants.h"
#include "tests/support/cuda_on_cpu/cuda_on_cpu.h"

namespace normd::cuda {
namespace {

class ArenaTest : public testing::Test {
 protected:
  ArenaTest() { cuda_on_cpu::Reset(); }
  ~ArenaTest() override { EXPECT_EQ(cuda_on_cpu::BytesAllocated(), before_); }

  static bool Takes(Arena& arena, int64_t bytes) {
    const absl::StatusOr<void*> taken = arena.Take(bytes);
    if (taken.ok()) std::memset(*taken, 1, static_cast<size_t>(bytes));
    return taken.ok();
  }

  const DeviceMemory memory_ = *DeviceMemory::Of(0, 64 * kMiB);

 private:
  const size_t before_ = cuda_on_cpu::BytesAllocated();
};

TEST_F(ArenaTest, ALargerJobTakesThePlaceOfASmallerOne) {
  Arena arena(8 * kMiB, memory_, nullptr);
  ASSERT_TRUE(Takes(arena, 5 * kMiB));
  arena.Reset();
  EXPECT_TRUE(Takes(arena, 7 * kMiB));
}

TEST_F(ArenaTest, ARefusalLeavesRoomForWhatFits) {
  Arena arena(8 * kMiB, memory_, nullptr);
  ASSERT_TRUE(Takes(arena, 3 * kMiB));
  ASSERT_TRUE(Takes(arena, 4 * kMiB));
  arena.Reset();  // 7 MiB in one
  ASSERT_TRUE(Takes(arena, 4 * kMiB));
  EXPECT_FALSE(Takes(arena, 4 * kMiB));
  arena.Reset();
  EXPECT_TRUE(Takes(arena, 4 * kMiB));
  EXPECT_TRUE(Takes(arena, 4 * kMiB));
}

TEST_F(ArenaTest, TheLimitHolds) {
  Arena arena(kMiB, memory_, nullptr);
  EXPECT_EQ(arena.Take(2 * kMiB).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Takes(arena, kMiB));
  EXPECT_EQ(arena.Take(1).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(ArenaTest, WhatWasTakenIsKeptForTheNextJob) {
  Arena arena(8 * kMiB, memory_, nullptr);
  ASSERT_TRUE(Takes(arena, 2 * kMiB));
  const size_t held = cuda_on_cpu::BytesAllocated();
  arena.Reset();
  ASSERT_TRUE(Takes(arena, 2 * kMiB));
  EXPECT_EQ(cuda_on_cpu::BytesAllocated(), held);
}

TEST_F(ArenaTest, ADeviceWithoutPoolsServesToo) {
  cuda_on_cpu::Device device;
  device.has_memory_pools = false;
  cuda_on_cpu::SetDevice(device);
  cuda_on_cpu::FailCalls("cudaMallocAsync", 0, cudaErrorNotSupported, false);
  Arena arena(8 * kMiB, *DeviceMemory::Of(0, 64 * kMiB), nullptr);
  EXPECT_TRUE(Takes(arena, 5 * kMiB));
  arena.Reset();
  EXPECT_TRUE(Takes(arena, 7 * kMiB));
}

}  // namespace
}  // namespace normd::cuda
