// The CPU's CUDA is right: threads meet where they must and nowhere else, and a kernel that lacks a barrier shows.
#include "tests/support/cuda_on_cpu/cuda_on_cpu.h"

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/device/launch_once.h"
#include "tests/device/planted_kernels.h"
#include "tests/support/cuda_on_cpu/fiber.h"

namespace normd {
namespace {

class CudaOnCpuOrder : public testing::Test {
 protected:
  ~CudaOnCpuOrder() override { cuda_on_cpu::Reset(); }

  // The different results of seeds 0 to 7.
  static std::set<std::vector<uint32_t>> Results(Barriers barriers) {
    constexpr int kBlocks = 2;
    constexpr int kThreads = 96;
    std::set<std::vector<uint32_t>> results;
    for (uint64_t seed = 0; seed < 8; ++seed) {
      cuda_on_cpu::SetSeed(seed);
      uint32_t* out = nullptr;
      EXPECT_EQ(cudaMalloc(&out, kBlocks * kThreads * sizeof(uint32_t)), cudaSuccess);
      EXPECT_EQ(LaunchNeighbours(barriers, kBlocks, kThreads, 4, out), cudaSuccess);
      results.emplace(out, out + kBlocks * kThreads);
      EXPECT_EQ(cudaFree(out), cudaSuccess);
    }
    return results;
  }
};

TEST_F(CudaOnCpuOrder, ARightKernelGivesTheSameBytesUnderEverySeed) { EXPECT_EQ(Results(Barriers::kBoth).size(), 1u); }

TEST_F(CudaOnCpuOrder, AMissingBarrierBeforeReadingShowsUnderSomeSeed) {
  EXPECT_GT(Results(Barriers::kAfterReading).size(), 1u);
}

TEST_F(CudaOnCpuOrder, AMissingBarrierAfterReadingShowsUnderSomeSeed) {
  EXPECT_GT(Results(Barriers::kBeforeReading).size(), 1u);
}

__global__ void TakeTickets(int* next, int* tickets) {
  tickets[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(next, 1);
  __syncthreads();
  tickets[(gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x] = atomicAdd(next, 1);
}

std::vector<int> Tickets(uint64_t seed) {
  cuda_on_cpu::SetSeed(seed);
  int next = 0;
  std::vector<int> tickets(2 * 4 * 64);
  EXPECT_EQ(LaunchOnce({.grid = 4, .block = 64}, TakeTickets, &next, tickets.data()), cudaSuccess);
  return tickets;
}

TEST_F(CudaOnCpuOrder, SeedZeroIsTheNaturalOrderAndASeedRepeatsItself) {
  const std::vector<int> natural = Tickets(0);
  for (int block = 0; block < 4; ++block) {
    for (int thread = 0; thread < 64; ++thread) {
      EXPECT_EQ(natural[block * 64 + thread], block * 128 + thread);
      EXPECT_EQ(natural[256 + block * 64 + thread], block * 128 + 64 + thread);
    }
  }
  std::set<std::vector<int>> orders;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const std::vector<int> order = Tickets(seed);
    EXPECT_EQ(Tickets(seed), order) << seed;
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 8u);
}

__global__ void CopyShared(uint32_t* out) {
  NORMD_DYNAMIC_SHARED(shared);
  out[blockIdx.x * blockDim.x + threadIdx.x] = reinterpret_cast<const uint32_t*>(shared)[threadIdx.x];
}

TEST_F(CudaOnCpuOrder, SharedMemoryBeginsAsJunkOfItsOwnInEveryBlockAndSeed) {
  std::set<std::vector<uint32_t>> contents;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    cuda_on_cpu::SetSeed(seed);
    std::vector<uint32_t> out(2 * 25);
    ASSERT_EQ(LaunchOnce({.grid = 2, .block = 25, .shared_bytes = 100}, CopyShared, out.data()), cudaSuccess);
    contents.emplace(out.begin(), out.begin() + 25);
    contents.emplace(out.begin() + 25, out.end());
  }
  EXPECT_EQ(contents.size(), 8u);
  EXPECT_FALSE(contents.contains(std::vector<uint32_t>(25)));
}

__global__ void Where(uint3* threads, uint3* blocks, unsigned* warp_sizes) {
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned at = block * (blockDim.x * blockDim.y * blockDim.z) + thread;
  __syncthreads();
  threads[at] = threadIdx;
  blocks[at] = blockIdx;
  warp_sizes[at] = warpSize;
}

TEST_F(CudaOnCpuOrder, IndicesAreThoseOfTheThreadAfterAMeetingToo) {
  cuda_on_cpu::SetSeed(5);
  std::vector<uint3> threads(6 * 24);
  std::vector<uint3> blocks(6 * 24);
  std::vector<unsigned> warp_sizes(6 * 24);
  ASSERT_EQ(LaunchOnce({.grid = dim3(3, 1, 2), .block = dim3(4, 3, 2)}, Where, threads.data(), blocks.data(),
                       warp_sizes.data()),
            cudaSuccess);
  for (unsigned at = 0; at < threads.size(); ++at) {
    EXPECT_EQ(threads[at].x + 4 * (threads[at].y + 3 * threads[at].z), at % 24);
    EXPECT_EQ(blocks[at].x + 3 * (blocks[at].y + 1 * blocks[at].z), at / 24);
    EXPECT_EQ(warp_sizes[at], 32u);
  }
}

class CudaOnCpuMeetings : public testing::TestWithParam<uint64_t> {
 protected:
  CudaOnCpuMeetings() { cuda_on_cpu::SetSeed(GetParam()); }
  ~CudaOnCpuMeetings() override { cuda_on_cpu::Reset(); }
};

INSTANTIATE_TEST_SUITE_P(Seeds, CudaOnCpuMeetings, testing::Values(0, 1, 2, 3));

// Every third thread leaves at once, every fifth after the first meeting.
__global__ void SomeLeave(unsigned* met) {
  NORMD_DYNAMIC_SHARED(shared);
  auto* const count = reinterpret_cast<unsigned*>(shared);
  if (threadIdx.x % 3 == 0) return;
  if (threadIdx.x == 1) *count = 0;
  __syncthreads();
  atomicAdd(count, 1u);
  if (threadIdx.x % 5 == 0) return;
  __syncwarp();
  __syncthreads();
  met[threadIdx.x] = *count;
}

TEST_P(CudaOnCpuMeetings, ThreadsThatExitedAreNotWaitedFor) {
  std::vector<unsigned> met(100);
  ASSERT_EQ(LaunchOnce({.block = 100, .shared_bytes = 4}, SomeLeave, met.data()), cudaSuccess);
  for (unsigned thread = 0; thread < 100; ++thread) {
    EXPECT_EQ(met[thread], thread % 3 == 0 || thread % 5 == 0 ? 0u : 66u) << thread;
  }
}

__global__ void PassThroughShared(unsigned* out) {
  NORMD_DYNAMIC_SHARED(shared);
  auto* const numbers = reinterpret_cast<unsigned*>(shared);
  const unsigned first = threadIdx.x / 32 * 32;
  for (unsigned round = 0; round < 3; ++round) {
    numbers[threadIdx.x] = threadIdx.x + 1000 * round;
    __syncwarp();
    out[round * 64 + threadIdx.x] = numbers[first + (threadIdx.x + 5) % 32];
    __syncwarp();
  }
}

TEST_P(CudaOnCpuMeetings, LanesMeetAtSyncwarp) {
  std::vector<unsigned> out(3 * 64);
  ASSERT_EQ(LaunchOnce({.block = 64, .shared_bytes = 256}, PassThroughShared, out.data()), cudaSuccess);
  for (unsigned at = 0; at < out.size(); ++at) {
    EXPECT_EQ(out[at], at % 64 / 32 * 32 + (at + 5) % 32 + 1000 * (at / 64));
  }
}

// Each block puts its index into its shared memory; all read all of the cluster.
__global__ void ReadCluster(unsigned* ranks, unsigned* read) {
  NORMD_DYNAMIC_SHARED(shared);
  auto* const numbers = reinterpret_cast<unsigned*>(shared);
  const auto cluster = cooperative_groups::this_cluster();
  const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
  numbers[threadIdx.x] = 100 * block + threadIdx.x;
  cluster.sync();
  unsigned sum = 0;
  for (unsigned rank = 0; rank < cluster.num_blocks(); ++rank) {
    sum += *cluster.map_shared_rank(&numbers[threadIdx.x], static_cast<int>(rank));
  }
  ranks[block * blockDim.x + threadIdx.x] = cluster.block_rank();
  read[block * blockDim.x + threadIdx.x] = sum;
  cluster.sync();
}

TEST_P(CudaOnCpuMeetings, BlocksOfAClusterReadTheSharedMemoryOfEachOther) {
  std::vector<unsigned> ranks(16 * 40);
  std::vector<unsigned> read(16 * 40);
  ASSERT_EQ(LaunchOnce({.grid = dim3(8, 2), .block = 40, .shared_bytes = 160, .cluster = dim3(2, 2)}, ReadCluster,
                       ranks.data(), read.data()),
            cudaSuccess);
  for (unsigned at = 0; at < ranks.size(); ++at) {
    const unsigned x = at / 40 % 8;
    const unsigned y = at / 40 / 8;
    EXPECT_EQ(ranks[at], x % 2 + 2 * y);
    const unsigned first = x / 2 * 2;
    EXPECT_EQ(read[at], 4 * (at % 40) + 100 * (first + first + 1 + first + 8 + first + 9));
  }
}

__global__ void ReadAnExitedBlock(unsigned* read) {
  NORMD_DYNAMIC_SHARED(shared);
  auto* const numbers = reinterpret_cast<unsigned*>(shared);
  const auto cluster = cooperative_groups::this_cluster();
  numbers[0] = 5;
  cluster.sync();
  if (cluster.block_rank() == 1) return;
  __syncthreads();
  *read = *cluster.map_shared_rank(numbers, 1);
}

TEST_F(CudaOnCpuOrder, SharedMemoryOfAnExitedBlockIsGone) {
  unsigned read = 0;
  const auto launch = [&] {
    cuda_on_cpu::SetSeed(0);
    return LaunchOnce({.grid = 2, .block = 1, .shared_bytes = 8, .cluster = 2}, ReadAnExitedBlock, &read);
  };
  if (CUDA_ON_CPU_ASAN) {
    EXPECT_DEATH(launch(), "use-after-poison");
  } else {
    ASSERT_EQ(launch(), cudaSuccess);
    EXPECT_NE(read, 5u);
  }
}

__global__ void WriteOnePastTheEnd(unsigned bytes) {
  NORMD_DYNAMIC_SHARED(shared);
  shared[bytes] = 1;
}

TEST(CudaOnCpuDeathTest, OneBytePastSharedMemoryIsSeen) {
  if (!CUDA_ON_CPU_ASAN) GTEST_SKIP() << "only AddressSanitizer sees an overrun: built without it";
  EXPECT_DEATH(LaunchOnce({.block = 1, .shared_bytes = 100}, WriteOnePastTheEnd, 100u), "heap-buffer-overflow");
}

__global__ void LoadVector(const unsigned char* from, uint4* to) { *to = *reinterpret_cast<const uint4*>(from); }

TEST(CudaOnCpuDeathTest, AMisalignedVectorIsSeen) {
#if NORMD_UBSAN
  alignas(16) const unsigned char bytes[32] = {};
  uint4 to = {};
  EXPECT_EQ(LaunchOnce({.block = 1}, LoadVector, &bytes[16], &to), cudaSuccess);
  EXPECT_DEATH(LaunchOnce({.block = 1}, LoadVector, &bytes[8], &to), "misaligned address");
#else
  static_cast<void>(LoadVector);
  GTEST_SKIP() << "only UndefinedBehaviorSanitizer sees a misaligned access: built without it";
#endif
}

__global__ void LoadVectorWithHint(const unsigned char* from, uint4* to) {
  __stcs(to, __ldg(reinterpret_cast<const uint4*>(from)));
}

TEST(CudaOnCpuDeathTest, AMisalignedVectorWithACacheHintIsSeenInEveryBuild) {
  alignas(16) const unsigned char bytes[32] = {};
  uint4 to = {};
  EXPECT_EQ(LaunchOnce({.block = 1}, LoadVectorWithHint, &bytes[16], &to), cudaSuccess);
  EXPECT_DEATH(LaunchOnce({.block = 1}, LoadVectorWithHint, &bytes[8], &to), "is no multiple of 16\n.*misaligned");
}

__global__ void HalfWaitsElsewhere() {
  if (threadIdx.x < 16) {
    __syncthreads();
  } else if (threadIdx.x < 32) {
    __shfl_xor_sync(0xffffffffu, 1, 1);
  }
}

TEST(CudaOnCpuDeathTest, ADeadlockIsNamedWithTheStateOfEveryThread) {
  EXPECT_DEATH(LaunchOnce({.grid = 2, .block = 40}, HalfWaitsElsewhere),
               "kernel .*grid \\(2, 1, 1\\), block \\(40, 1, 1\\), seed 0\n"
               " *block \\(0, 0, 0\\) threads 0 to 15: wait at __syncthreads\n"
               " *block \\(0, 0, 0\\) threads 16 to 31: wait at __shfl_xor_sync, mask 0xffffffff\n"
               " *block \\(0, 0, 0\\) threads 32 to 39: exited\n"
               ".*deadlock");
}

__global__ void DifferentShuffles() {
  if (threadIdx.x % 2 == 0) {
    __shfl_xor_sync(0xffffffffu, 1, 1);
  } else {
    __shfl_down_sync(0xffffffffu, 1, 1);
  }
}

TEST(CudaOnCpuDeathTest, LanesAtDifferentIntrinsicsDoNotMeet) {
  EXPECT_DEATH(LaunchOnce({.block = 32}, DifferentShuffles), "wait at __shfl_down_sync(.|\n)*deadlock");
}

__global__ void ForeignMask() { __syncwarp(0xfffffffeu); }

TEST(CudaOnCpuDeathTest, AMaskWithoutTheLaneItselfIsRefused) {
  EXPECT_DEATH(LaunchOnce({.block = 32}, ForeignMask), "lane 0: __syncwarp, mask 0xfffffffe\n.*lacks the lane");
}

__global__ void MapTooFar() {
  NORMD_DYNAMIC_SHARED(shared);
  cooperative_groups::this_cluster().map_shared_rank(shared, 2);
}

TEST(CudaOnCpuDeathTest, ARankThatTheClusterDoesNotHaveIsRefused) {
  EXPECT_DEATH(LaunchOnce({.grid = 2, .block = 1, .shared_bytes = 8, .cluster = 2}, MapTooFar), "rank");
}

__global__ void SumOfBlock(double* sum) {
  double mine = threadIdx.x;
  for (int by = 16; by > 0; by /= 2) mine += __shfl_down_sync(0xffffffffu, mine, by);
  NORMD_DYNAMIC_SHARED(shared);
  auto* const sums = reinterpret_cast<double*>(shared);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x == 0) *sum = std::accumulate(sums, sums + blockDim.x / 32, 0.0);
}

TEST_P(CudaOnCpuMeetings, KernelsOfSeveralHostThreadsRunAtOneTime) {
  const int64_t before = cuda_on_cpu::Launches();
  std::vector<double> sums(4 * 50);
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int host = 0; host < 4; ++host) {
    threads.emplace_back([&sums, host] {
      for (int i = 0; i < 50; ++i) {
        const unsigned size = 32u * static_cast<unsigned>(host + 1);
        static_cast<void>(LaunchOnce({.block = size, .shared_bytes = size / 4}, SumOfBlock, &sums[host * 50 + i]));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 200; ++i) {
    const int size = 32 * (i / 50 + 1);
    EXPECT_EQ(sums[i], 0.5 * size * (size - 1)) << i;
  }
  EXPECT_EQ(cuda_on_cpu::Launches() - before, 200);
}

}  // namespace
}  // namespace normd
