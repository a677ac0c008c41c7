#include "tests/support/cuda_on_cpu/launch.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/support/cuda_on_cpu/fiber.h"
#include "tests/support/cuda_on_cpu/report.h"
#include "tests/support/cuda_on_cpu/scheduler.h"

#if CUDA_ON_CPU_ASAN
#include <sanitizer/asan_interface.h>
#endif

constinit thread_local uint3 threadIdx = {};
constinit thread_local uint3 blockIdx = {};
constinit thread_local dim3 blockDim = {};
constinit thread_local dim3 gridDim = {};

namespace cuda_on_cpu {

constinit thread_local unsigned char* dynamic_shared = nullptr;

namespace {

// The thread that runs on this host thread; fibers never change theirs.
constinit thread_local Thread* running = nullptr;

thread_local Scheduler scheduler;

// From here on `thread` runs.
void SetRunning(Thread& thread) {
  running = &thread;
  threadIdx = thread.index;
  blockIdx = thread.block->index;
  dynamic_shared = thread.block->shared;
}

// What a fiber does: run one thread after another. A thread that has not begun is run here, without a switch; before
// one that has, this fiber gives itself back and goes on when a thread is given to it.
void RunThreads() {
  ArriveFirst();
  for (;;) {
    Thread* thread = running;
    scheduler.launch().body(scheduler.launch().arguments);
    scheduler.Exit(*thread);
  }
}

// Of shared memory after its last use: junk, and for ASan out of bounds.
void Poison([[maybe_unused]] unsigned char* shared, [[maybe_unused]] size_t bytes) {
#if CUDA_ON_CPU_ASAN
  __asan_poison_memory_region(shared, bytes);
#endif
}

void Unpoison([[maybe_unused]] unsigned char* shared, [[maybe_unused]] size_t bytes) {
#if CUDA_ON_CPU_ASAN
  __asan_unpoison_memory_region(shared, bytes);
#endif
}

unsigned Count(const dim3& size) { return size.x * size.y * size.z; }

uint3 At(unsigned flat, const dim3& size) { return {flat % size.x, flat / size.x % size.y, flat / size.x / size.y}; }

}  // namespace

uint64_t Mix(uint64_t number) {
  uint64_t z = number + 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

void FillWithJunk(void* to, size_t bytes, uint64_t seed) {
  auto* at = static_cast<unsigned char*>(to);
  uint64_t junk = Mix(seed);
  for (; bytes >= sizeof(junk); bytes -= sizeof(junk), at += sizeof(junk)) {
    std::memcpy(at, &junk, sizeof(junk));
    junk = junk * 6364136223846793005 + 1442695040888963407;
  }
  junk = Mix(junk);
  std::memcpy(at, &junk, bytes);
}

Scheduler::Scheduler() : fibers_(RunThreads) {}

Scheduler::~Scheduler() { FreeShared(); }

uint64_t Scheduler::Random() { return Mix(random_++); }

void Scheduler::FreeShared() {
  for (unsigned char* shared : shared_) {
    Unpoison(shared, shared_bytes_);
    std::free(shared);
  }
  shared_.clear();
}

void Scheduler::AllocateShared() {
  const size_t blocks = Count(launch_->cluster);
  if (shared_bytes_ == launch_->shared_bytes && shared_.size() >= blocks) return;
  FreeShared();
  shared_bytes_ = launch_->shared_bytes;
  shared_.resize(blocks);
  for (unsigned char*& shared : shared_) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 128, shared_bytes_) != 0) Die("no memory for shared memory");
    shared = static_cast<unsigned char*>(memory);
  }
}

void Scheduler::Run(const Launch& launch) {
  if (running != nullptr) Die("a kernel launches a kernel");
  launch_ = &launch;
  // The launch's shape, so that the same launch is repeated whatever ran before it.
  random_ =
      Mix(Mix(launch.seed) ^ (uint64_t{Count(launch.grid)} << 32 | Count(launch.block) << 12) ^ launch.shared_bytes);
  constexpr unsigned kAheadOf256[] = {128, 0, 256};
  ahead_of_256_ = kAheadOf256[launch.seed % 3];
  blockDim = launch.block;
  gridDim = launch.grid;
  AllocateShared();
  const unsigned clusters = Count(launch.grid) / Count(launch.cluster);
  std::vector<unsigned> order(launch.seed == 0 ? 0 : clusters);
  for (unsigned i = 0; i < order.size(); ++i) order[i] = i;
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[Random() % i]);
  for (unsigned i = 0; i < clusters; ++i) {
    SetUp(order.empty() ? i : order[i]);
    Resume(Pick(), &main_);
  }
  running = nullptr;
}

void Scheduler::SetUp(unsigned cluster) {
  const dim3& size = launch_->cluster;
  const dim3 clusters(launch_->grid.x / size.x, launch_->grid.y / size.y, launch_->grid.z / size.z);
  const unsigned threads = Count(launch_->block);
  const uint3 first = At(cluster, clusters);
  blocks_.resize(Count(size));
  warps_.assign(blocks_.size() * ((threads + 31) / 32), Warp{});
  threads_.resize(blocks_.size() * threads);
  ready_.clear();
  ready_from_ = 0;
  for (unsigned rank = 0; rank < blocks_.size(); ++rank) {
    const uint3 in_cluster = At(rank, size);
    SetUpBlock(rank,
               {first.x * size.x + in_cluster.x, first.y * size.y + in_cluster.y, first.z * size.z + in_cluster.z});
  }
  arrived_ = 0;
  live_ = static_cast<unsigned>(threads_.size());
  Shuffle(0);
}

void Scheduler::SetUpBlock(unsigned rank, const uint3& index) {
  const unsigned threads = Count(launch_->block);
  Block& block = blocks_[rank];
  block = {.index = index,
           .shared = shared_[rank],
           .threads = &threads_[size_t{rank} * threads],
           .count = threads,
           .live = threads,
           .rank = rank};
  Unpoison(shared_[rank], shared_bytes_);
  FillWithJunk(shared_[rank], shared_bytes_, Random());
  for (unsigned i = 0; i < threads; ++i) {
    Thread& thread = block.threads[i];
    Warp& warp = warps_[rank * (warps_.size() / blocks_.size()) + i / 32];
    thread = {At(i, launch_->block), &block, &warp, i % 32};
    if (thread.lane == 0) warp.lanes = &thread;
    warp.live |= 1u << thread.lane;
    ready_.push_back(&thread);
  }
}

void Scheduler::Shuffle(size_t from) {
  if (launch_->seed == 0) return;
  for (size_t i = ready_.size(); i > from + 1; --i) std::swap(ready_[i - 1], ready_[from + Random() % (i - from)]);
}

// The next thread to run. In the natural order first come, first served.
Thread* Scheduler::Pick() {
  if (ready_from_ == ready_.size()) ReportDeadlock(*launch_, blocks_);
  if (launch_->seed == 0) {
    Thread* next = ready_[ready_from_++];
    if (ready_from_ == ready_.size()) {
      ready_.clear();
      ready_from_ = 0;
    }
    return next;
  }
  const uint64_t random = Random();
  if (random % 256 >= ahead_of_256_) std::swap(ready_.back(), ready_[random / 256 % ready_.size()]);
  Thread* next = ready_.back();
  ready_.pop_back();
  return next;
}

// Goes on with `thread`, leaving the running context in `from`.
void Scheduler::Resume(Thread* thread, Context* from) {
  SetRunning(*thread);
  if (thread->fiber == nullptr) thread->fiber = fibers_.Take();
  SwitchContext(*from, thread->fiber->context);
}

// The running thread waits, or was just released: others run.
void Scheduler::Yield() {
  Thread& self = *running;
  Thread* next = Pick();
  if (next != &self) Resume(next, &self.fiber->context);
}

void Scheduler::Release(Thread& thread) {
  thread.meeting = Meeting::kNone;
  ready_.push_back(&thread);
}

void Scheduler::MeetBlock() {
  Thread& self = *running;
  self.meeting = Meeting::kSyncThreads;
  ++self.block->arrived;
  ReleaseBlock(*self.block);
  Yield();
}

void Scheduler::ReleaseBlock(Block& block) {
  if (block.arrived == 0 || block.arrived != block.live) return;
  block.arrived = 0;
  const size_t from = ready_.size();
  for (unsigned i = 0; i < block.count; ++i) {
    if (block.threads[i].meeting == Meeting::kSyncThreads) Release(block.threads[i]);
  }
  Shuffle(from);
}

void Scheduler::MeetCluster() {
  running->meeting = Meeting::kSyncCluster;
  ++arrived_;
  ReleaseCluster();
  Yield();
}

void Scheduler::ReleaseCluster() {
  if (arrived_ == 0 || arrived_ != live_) return;
  arrived_ = 0;
  const size_t from = ready_.size();
  for (Thread& thread : threads_) {
    if (thread.meeting == Meeting::kSyncCluster) Release(thread);
  }
  Shuffle(from);
}

uint64_t Scheduler::MeetWarp(Meeting meeting, unsigned mask, uint64_t given, unsigned source_lane) {
  Thread& self = *running;
  const unsigned bit = 1u << self.lane;
  if ((mask & bit) == 0) {
    ReportThread(*launch_, self, meeting, mask);
    Die("a lane's mask lacks the lane itself");
  }
  self.meeting = meeting;
  self.mask = mask;
  self.given = given;
  self.source_lane = source_lane;
  self.warp->waiting |= bit;
  ReleaseWarp(*self.warp, meeting, mask);
  Yield();
  return self.taken;
}

// Releases the lanes of `mask` if all that live wait for the same. Values are handed over here, at once: a released
// lane may run on and give its next value before another has read this one.
void Scheduler::ReleaseWarp(Warp& warp, Meeting meeting, unsigned mask) {
  const unsigned members = mask & warp.live;
  if ((warp.waiting & members) != members) return;
  uint64_t ballot = 0;
  for (unsigned rest = members; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const Thread& thread = warp.lanes[lane];
    if (thread.meeting != meeting || thread.mask != mask) return;
    if (thread.given != 0) ballot |= 1u << lane;
  }
  const bool vote = meeting == Meeting::kBallot || meeting == Meeting::kAny || meeting == Meeting::kAll;
  for (unsigned rest = members; rest != 0; rest &= rest - 1) {
    Thread& thread = warp.lanes[std::countr_zero(rest)];
    if (vote) {
      thread.taken = ballot | uint64_t{members} << 32;
    } else if ((members >> (thread.source_lane & 31) & 1) != 0) {
      thread.taken = warp.lanes[thread.source_lane & 31].given;
    } else {
      thread.taken = Random();
    }
  }
  warp.waiting &= ~members;
  const size_t from = ready_.size();
  for (unsigned rest = members; rest != 0; rest &= rest - 1) Release(warp.lanes[std::countr_zero(rest)]);
  Shuffle(from);
}

// The kernel has returned in `thread`, which nobody waits for any more. Returns when its fiber has another thread.
void Scheduler::Exit(Thread& thread) {
  thread.meeting = Meeting::kExited;
  Block& block = *thread.block;
  Warp& warp = *thread.warp;
  --block.live;
  --live_;
  warp.live &= ~(1u << thread.lane);
  for (unsigned rest = warp.waiting; rest != 0; rest &= rest - 1) {
    const unsigned lane = static_cast<unsigned>(std::countr_zero(rest));
    if ((warp.waiting >> lane & 1) != 0) ReleaseWarp(warp, warp.lanes[lane].meeting, warp.lanes[lane].mask);
  }
  ReleaseBlock(block);
  ReleaseCluster();
  if (block.live == 0 && blocks_.size() > 1) {
    FillWithJunk(block.shared, shared_bytes_, Random());
    Poison(block.shared, shared_bytes_);
  }
  Fiber* fiber = thread.fiber;
  if (live_ == 0) {
    fibers_.Give(fiber);
    SwitchContext(fiber->context, main_);
    return;
  }
  Thread* next = Pick();
  if (next->fiber == nullptr) {
    next->fiber = fiber;
    SetRunning(*next);
    return;
  }
  fibers_.Give(fiber);
  Resume(next, &fiber->context);
}

void* Scheduler::InSharedOf(const void* address, unsigned rank) {
  const size_t offset = static_cast<size_t>(static_cast<const unsigned char*>(address) - dynamic_shared);
  // One past the end is an address, too.
  if (offset > shared_bytes_) Die("map_shared_rank of an address that is not in this block's shared memory");
  if (rank >= blocks_.size()) Die("map_shared_rank of a rank that the cluster does not have");
  return shared_[rank] + offset;
}

void Run(const Launch& launch) { scheduler.Run(launch); }
void MeetBlock() { scheduler.MeetBlock(); }
void MeetCluster() { scheduler.MeetCluster(); }
uint64_t MeetWarp(Meeting meeting, unsigned mask, uint64_t given, unsigned source_lane) {
  return scheduler.MeetWarp(meeting, mask, given, source_lane);
}
void DieOfAddress(const volatile void* address, size_t alignment) {
  if (running != nullptr) ReportThread(scheduler.launch(), *running, Meeting::kNone, 0);
  std::fprintf(stderr, "cuda_on_cpu: %p is no multiple of %zu\n", const_cast<const void*>(address), alignment);
  Die("misaligned address");
}
unsigned Lane() { return running->lane; }
unsigned ClusterRank() { return running->block->rank; }
unsigned ClusterBlocks() { return Count(scheduler.launch().cluster); }
void* InSharedOf(const void* address, unsigned rank) { return scheduler.InSharedOf(address, rank); }

}  // namespace cuda_on_cpu
