// Each intrinsic of the CPU's CUDA gives what CUDA documents, in every order of threads.
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/device/launch_once.h"
#include "tests/support/cuda_on_cpu/cuda_on_cpu.h"

namespace normd {
namespace {

constexpr unsigned kAll = 0xffffffffu;

class Intrinsics : public testing::TestWithParam<uint64_t> {
 protected:
  Intrinsics() { cuda_on_cpu::SetSeed(GetParam()); }
  ~Intrinsics() override { cuda_on_cpu::Reset(); }
};

INSTANTIATE_TEST_SUITE_P(Seeds, Intrinsics, testing::Values(0, 1, 2, 3, 17));

template <typename T>
T Number(unsigned lane) {
  return static_cast<T>(static_cast<T>(std::is_signed_v<T> ? -7 : 7) * static_cast<T>(lane + 1)) / 2;
}

template <typename T>
__global__ void Shuffle(int width, int by, T* indexed, T* down, T* crossed) {
  const unsigned at = threadIdx.x;
  const T mine = Number<T>(at);
  indexed[at] = __shfl_sync(kAll, mine, by, width);
  down[at] = __shfl_down_sync(kAll, mine, static_cast<unsigned>(by), width);
  crossed[at] = __shfl_xor_sync(kAll, mine, by, width);
}

template <typename T>
void ShufflesFollowTheDocumentation() {
  for (const int width : {32, 16, 8, 4}) {
    for (int by = 0; by < 32; ++by) {
      std::vector<T> indexed(64);
      std::vector<T> down(64);
      std::vector<T> crossed(64);
      ASSERT_EQ(LaunchOnce({.block = 64}, Shuffle<T>, width, by, indexed.data(), down.data(), crossed.data()),
                cudaSuccess);
      for (int thread = 0; thread < 64; ++thread) {
        const int warp = thread / 32 * 32;
        const int lane = thread % 32;
        const int group = lane / width * width;
        const int from_down = lane - group + by < width ? lane + by : lane;
        const int from_cross = (lane ^ by) < group + width ? lane ^ by : lane;
        ASSERT_EQ(indexed[thread], Number<T>(warp + group + by % width)) << width << ' ' << by << ' ' << thread;
        ASSERT_EQ(down[thread], Number<T>(warp + from_down)) << width << ' ' << by << ' ' << thread;
        ASSERT_EQ(crossed[thread], Number<T>(warp + from_cross)) << width << ' ' << by << ' ' << thread;
      }
    }
  }
}

TEST_P(Intrinsics, ShufflesOfEveryTypeAndWidthFollowTheDocumentation) {
  ShufflesFollowTheDocumentation<int>();
  ShufflesFollowTheDocumentation<unsigned>();
  ShufflesFollowTheDocumentation<long>();
  ShufflesFollowTheDocumentation<unsigned long>();
  ShufflesFollowTheDocumentation<long long>();
  ShufflesFollowTheDocumentation<unsigned long long>();
  ShufflesFollowTheDocumentation<float>();
  ShufflesFollowTheDocumentation<double>();
}

__global__ void SumByHalves(double* sums) {
  // Upper lanes take twice as many turns: halves of a warp meet apart.
  const bool upper = threadIdx.x % 32 >= 16;
  const unsigned mask = upper ? 0xffff0000u : 0x0000ffffu;
  double sum = threadIdx.x;
  for (int turn = 0; turn < (upper ? 2 : 1); ++turn) {
    for (int by = 8; by > 0; by /= 2) sum += __shfl_xor_sync(mask, sum, by, 16);
  }
  sums[threadIdx.x] = sum;
}

TEST_P(Intrinsics, HalvesOfAWarpMeetApartByTheirMasks) {
  std::vector<double> sums(96);
  ASSERT_EQ(LaunchOnce({.block = 96}, SumByHalves, sums.data()), cudaSuccess);
  for (int thread = 0; thread < 96; ++thread) {
    const int first = thread / 16 * 16;
    const double once = 16.0 * first + 120;
    EXPECT_EQ(sums[thread], thread % 32 < 16 ? once : 16 * once) << thread;
  }
}

__global__ void Vote(unsigned* ballots, int* any, int* all) {
  const unsigned at = threadIdx.x;
  const unsigned mask = at % 32 < 8 ? 0xffu : 0xffffff00u;
  ballots[at] = __ballot_sync(mask, at % 3 == 0);
  any[at] = __any_sync(mask, at == 40);
  all[at] = __all_sync(mask, at >= 8);
}

TEST_P(Intrinsics, VotesCountTheLanesOfTheMaskThatExist) {
  std::vector<unsigned> ballots(48);
  std::vector<int> any(48);
  std::vector<int> all(48);
  ASSERT_EQ(LaunchOnce({.block = 48}, Vote, ballots.data(), any.data(), all.data()), cudaSuccess);
  for (unsigned thread = 0; thread < 48; ++thread) {
    const unsigned warp = thread / 32 * 32;
    unsigned ballot = 0;
    for (unsigned lane = 0; lane < 32 && warp + lane < 48; ++lane) {
      if ((lane < 8) == (thread % 32 < 8) && (warp + lane) % 3 == 0) ballot |= 1u << lane;
    }
    EXPECT_EQ(ballots[thread], ballot) << thread;
    EXPECT_EQ(any[thread], thread >= 40) << thread;
    EXPECT_EQ(all[thread], thread >= 8) << thread;
  }
}

__global__ void ReadOutsideTheMask(unsigned* taken) {
  if (threadIdx.x < 16) taken[threadIdx.x] = __shfl_sync(0xffffu, 5u, 20);
}

TEST_P(Intrinsics, ALaneOutsideTheMaskGivesJunk) {
  std::vector<unsigned> taken(16, 5);
  ASSERT_EQ(LaunchOnce({.block = 32}, ReadOutsideTheMask, taken.data()), cudaSuccess);
  EXPECT_NE(taken, std::vector<unsigned>(16, 5));
  EXPECT_NE(taken, std::vector<unsigned>(16, 0));
}

template <typename T>
__global__ void Atomics(T* at, T* tickets) {
  tickets[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(&at[0], T{1});
  atomicMax(&at[1], static_cast<T>(threadIdx.x) * 3);
  atomicOr(&at[2], static_cast<T>(T{1} << (threadIdx.x % 31)));
  const T before = atomicExch(&at[3], static_cast<T>(threadIdx.x));
  atomicAdd(&at[4], before);
  __threadfence();
  __threadfence_block();
}

template <typename T>
void AtomicsReturnWhatWasThere() {
  std::vector<T> at = {0, 5, 0, 0, 0};
  std::vector<T> tickets(3 * 64);
  ASSERT_EQ(LaunchOnce({.grid = 3, .block = 64}, Atomics<T>, at.data(), tickets.data()), cudaSuccess);
  EXPECT_EQ(at[0], T{192});
  EXPECT_EQ(at[1], T{189});
  EXPECT_EQ(at[2], T{0x7fffffff});
  EXPECT_EQ(at[3] + at[4], T{3 * 63 * 64 / 2});  // each number but the last came out of an exchange
  std::vector<bool> seen(192);
  for (const T ticket : tickets) seen[static_cast<size_t>(ticket)] = true;
  EXPECT_EQ(seen, std::vector<bool>(192, true));
}

TEST_P(Intrinsics, AtomicsReturnWhatWasThere) {
  AtomicsReturnWhatWasThere<int>();
  AtomicsReturnWhatWasThere<unsigned>();
  AtomicsReturnWhatWasThere<unsigned long long>();
}

TEST(IntrinsicsOfOneThread, BitsAndHighHalvesAreThoseOfCuda) {
  EXPECT_EQ(__float_as_uint(-1.5f), 0xbfc00000u);
  EXPECT_EQ(__uint_as_float(0xbfc00000u), -1.5f);
  EXPECT_EQ(__double_as_longlong(1.0), 0x3ff0000000000000);
  EXPECT_EQ(__longlong_as_double(0x3ff0000000000000), 1.0);
  EXPECT_EQ(__umulhi(0xffffffffu, 0xffffffffu), 0xfffffffeu);
  EXPECT_EQ(__umul64hi(~0ull, 3), 2u);
  EXPECT_EQ(__clz(0), 32);
  EXPECT_EQ(__clz(1), 31);
  EXPECT_EQ(__clz(-1), 0);
  EXPECT_EQ(__clzll(0), 64);
  EXPECT_EQ(__clzll(1ll << 40), 23);
  EXPECT_EQ(__ffs(0), 0);
  EXPECT_EQ(__ffs(8), 4);
  EXPECT_EQ(__ffs(std::numeric_limits<int>::min()), 32);
}

TEST(IntrinsicsOfOneThread, MinAndMaxTakeTheUnsignedOfMixedSignsAndTheNumberBesideANan) {
  EXPECT_EQ(min(-1, 1), -1);
  EXPECT_EQ(max(-1, 1u), 0xffffffffu);
  EXPECT_EQ(min(3ll, -4ll), -4);
  EXPECT_EQ(max(3ull, 4ull), 4u);
  EXPECT_EQ(min(size_t{3}, size_t{4}), 3u);
  EXPECT_EQ(min(NAN, 2.0f), 2.0f);
  EXPECT_EQ(max(NAN, 2.0), 2.0);
  EXPECT_EQ(max(1.0f, 2.0), 2.0);
}

TEST(IntrinsicsOfOneThread, HintedLoadsAndStoresMoveWholeVectors) {
  const uint4 from = make_uint4(1, 2, 3, 4);
  uint4 to = {};
  __stcs(&to, __ldg(&from));
  EXPECT_EQ(to.w, 4u);
  EXPECT_EQ(__ldcs(&to).x, 1u);
  EXPECT_EQ(__ldcg(&to).z, 3u);
}

TEST(IntrinsicsOfOneThread, VectorsAreAlignedAsCudaAlignsThem) {
  EXPECT_EQ(alignof(uint2), 8u);
  EXPECT_EQ(alignof(float2), 8u);
  EXPECT_EQ(alignof(uint4), 16u);
  EXPECT_EQ(alignof(int4), 16u);
  EXPECT_EQ(alignof(float4), 16u);
  EXPECT_EQ(alignof(double2), 16u);
  EXPECT_EQ(alignof(ulonglong2), 16u);
  EXPECT_EQ(make_int4(1, 2, 3, 4).y + static_cast<int>(make_uint2(5, 6).y), 8);
  EXPECT_EQ(make_float2(1, 2).y + make_float4(1, 2, 3, 4).w + make_double2(1, 2).y, 8);
  EXPECT_EQ(make_ulonglong2(1, 2).y, 2u);
}

}  // namespace
}  // namespace normd
