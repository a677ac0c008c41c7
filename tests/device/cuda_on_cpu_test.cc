// The CPU's CUDA is right: threads meet where they must and nowhere else, and a kernel that lacks a barrier shows.
#include "tests/support/cuda_on_cpu/cuda_on_cpu.h"

#include <cstdint>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "tests/device/planted_kernels.h"

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

}  // namespace
}  // namespace normd
