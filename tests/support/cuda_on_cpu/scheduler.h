// Who runs next: the threads of the cluster that is being run, where they wait, and the fibers that carry them. Private
// to launch.cc and report.cc. Threads: one scheduler a host thread. Ownership: the scheduler keeps fibers and shared
// memory from launch to launch; blocks, warps and threads are those of one cluster and are overwritten by the next.
#ifndef NORMD_TESTS_SUPPORT_CUDA_ON_CPU_SCHEDULER_H_
#define NORMD_TESTS_SUPPORT_CUDA_ON_CPU_SCHEDULER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/support/cuda_on_cpu/fiber.h"
#include "tests/support/cuda_on_cpu/launch.h"

namespace cuda_on_cpu {

struct Block;
struct Warp;

struct Thread {
  uint3 index;
  Block* block = nullptr;
  Warp* warp = nullptr;
  unsigned lane = 0;
  Meeting meeting = Meeting::kNone;
  unsigned mask = 0;         // of the meeting of lanes
  unsigned source_lane = 0;  // whose value it takes
  uint64_t given = 0;
  uint64_t taken = 0;
  Fiber* fiber = nullptr;  // null until it begins
};

struct Warp {
  Thread* lanes = nullptr;
  unsigned live = 0;     // bits of lanes that exist and have not exited
  unsigned waiting = 0;  // bits of lanes that wait for lanes
};

struct Block {
  uint3 index;
  unsigned char* shared = nullptr;
  Thread* threads = nullptr;
  unsigned count = 0;
  unsigned live = 0;
  unsigned rank = 0;     // in the cluster
  unsigned arrived = 0;  // at __syncthreads
};

class Scheduler {
 public:
  Scheduler();
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  const Launch& launch() const { return *launch_; }

  void Run(const Launch& launch);
  void MeetBlock();
  void MeetCluster();
  uint64_t MeetWarp(Meeting meeting, unsigned mask, uint64_t given, unsigned source_lane);
  void Exit(Thread& thread);
  void* InSharedOf(const void* address, unsigned rank);

 private:
  uint64_t Random();
  void AllocateShared();
  void FreeShared();
  void SetUp(unsigned cluster);
  void SetUpBlock(unsigned rank, const uint3& index);
  void Shuffle(size_t from);
  Thread* Pick();
  void Resume(Thread* thread, Context* from);
  void Yield();
  void Release(Thread& thread);
  void ReleaseBlock(Block& block);
  void ReleaseCluster();
  void ReleaseWarp(Warp& warp, Meeting meeting, unsigned mask);

  FiberPool fibers_;
  Context main_;
  const Launch* launch_ = nullptr;
  uint64_t random_ = 0;
  unsigned ahead_of_256_ = 0;  // of 256 picks, how many take the thread that was released last
  size_t shared_bytes_ = 0;
  std::vector<unsigned char*> shared_;  // of each block of a cluster
  std::vector<Block> blocks_;
  std::vector<Warp> warps_;
  std::vector<Thread> threads_;
  unsigned live_ = 0;     // threads of the cluster
  unsigned arrived_ = 0;  // at the cluster's barrier
  std::vector<Thread*> ready_;
  size_t ready_from_ = 0;  // in the natural order, a queue's head
};

}  // namespace cuda_on_cpu

#endif  // NORMD_TESTS_SUPPORT_CUDA_ON_CPU_SCHEDULER_H_
