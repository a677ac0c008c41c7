// One launch of a kernel: every CUDA thread a fiber, one cluster of blocks after the other, and the points where
// threads meet. Used by the runtime (Run) and by the intrinsics (the rest). Threads: a launch lives on the host thread
// that called Run; launches of several host threads share nothing here. Exited threads count as arrived everywhere.
// What can never go on, and what no GPU defines (a lane whose mask lacks itself), is printed and ends the process.
#ifndef NORMD_TESTS_SUPPORT_CUDA_ON_CPU_LAUNCH_H_
#define NORMD_TESTS_SUPPORT_CUDA_ON_CPU_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "tests/support/cuda_on_cpu/language.h"

namespace cuda_on_cpu {

// Where a thread waits, and what a warp meets for: only lanes at the same kind meet.
enum class Meeting : uint8_t {
  kNone,
  kSyncThreads,
  kSyncCluster,
  kSyncWarp,
  kShuffle,
  kShuffleDown,
  kShuffleXor,
  kBallot,
  kAny,
  kAll,
  kExited,
};

struct Launch {
  const void* kernel = nullptr;  // for messages
  dim3 grid;
  dim3 block;
  dim3 cluster;  // divides the grid
  size_t shared_bytes = 0;
  void (*body)(void* arguments) = nullptr;  // calls the kernel with its own copy of the arguments
  void* arguments = nullptr;
  uint64_t seed = 0;
};

// Returns when all threads have exited. REQUIRES: the sizes were checked; not called from a kernel.
void Run(const Launch& launch);

// 64 bits that look random, of any number (SplitMix64).
uint64_t Mix(uint64_t number);

// Fills with junk: no zeros to rely on.
void FillWithJunk(void* to, size_t bytes, uint64_t seed);

void MeetBlock();
void MeetCluster();

// The lanes of `mask` exchange 64-bit values: each gets what lane `source_lane` gave, and junk where that lane is not
// in the mask or has exited. For the votes: the ballot in the low half, the lanes that voted in the high half.
uint64_t MeetWarp(Meeting meeting, unsigned mask, uint64_t given, unsigned source_lane);

// Ends the process: `address` does not suit a type that wants `alignment` bytes.
[[noreturn]] void DieOfAddress(const volatile void* address, size_t alignment);

unsigned Lane();
unsigned ClusterRank();
unsigned ClusterBlocks();
// `address` of this block's shared memory, in that of block `rank` of the cluster.
void* InSharedOf(const void* address, unsigned rank);

}  // namespace cuda_on_cpu

#endif  // NORMD_TESTS_SUPPORT_CUDA_ON_CPU_LAUNCH_H_
