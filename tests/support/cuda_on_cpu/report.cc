#include "tests/support/cuda_on_cpu/report.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace cuda_on_cpu {
namespace {

const char* NameOf(Meeting meeting) {
  switch (meeting) {
    case Meeting::kNone:
      return "nothing";
    case Meeting::kSyncThreads:
      return "__syncthreads";
    case Meeting::kSyncCluster:
      return "cluster_group::sync";
    case Meeting::kSyncWarp:
      return "__syncwarp";
    case Meeting::kShuffle:
      return "__shfl_sync";
    case Meeting::kShuffleDown:
      return "__shfl_down_sync";
    case Meeting::kShuffleXor:
      return "__shfl_xor_sync";
    case Meeting::kBallot:
      return "__ballot_sync";
    case Meeting::kAny:
      return "__any_sync";
    case Meeting::kAll:
      return "__all_sync";
    case Meeting::kExited:
      return "exited";
  }
  return "?";
}

// The kernel's name where the program exports it, else its place in the program.
std::string NameOf(const void* kernel) {
  Dl_info info = {};
  char place_in_file[64];
  if (dladdr(kernel, &info) == 0) {
    std::snprintf(place_in_file, sizeof(place_in_file), "at %p", kernel);
    return place_in_file;
  }
  if (info.dli_sname != nullptr && info.dli_saddr == kernel) {
    int status = 0;
    char* name = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
    std::string result = status == 0 ? name : info.dli_sname;
    std::free(name);
    return result;
  }
  std::snprintf(place_in_file, sizeof(place_in_file), "+%#tx",
                static_cast<const char*>(kernel) - static_cast<const char*>(info.dli_fbase));
  return std::string(info.dli_fname) + place_in_file;
}

void ReportLaunch(const Launch& launch) {
  std::fprintf(stderr, "cuda_on_cpu: kernel %s, grid (%u, %u, %u), block (%u, %u, %u), seed %llu\n",
               NameOf(launch.kernel).c_str(), launch.grid.x, launch.grid.y, launch.grid.z, launch.block.x,
               launch.block.y, launch.block.z, static_cast<unsigned long long>(launch.seed));
}

bool OfLanes(Meeting meeting) { return meeting >= Meeting::kSyncWarp && meeting < Meeting::kExited; }

bool SameState(const Thread& a, const Thread& b) {
  return a.meeting == b.meeting && (!OfLanes(a.meeting) || a.mask == b.mask);
}

// Threads first to last, counted through the block, stand at the same.
void ReportThreads(const Block& block, unsigned first, unsigned last) {
  const Thread& thread = block.threads[first];
  std::fprintf(stderr, "  block (%u, %u, %u) threads %u to %u: %s%s", thread.block->index.x, thread.block->index.y,
               thread.block->index.z, first, last, thread.meeting == Meeting::kExited ? "" : "wait at ",
               NameOf(thread.meeting));
  if (OfLanes(thread.meeting)) std::fprintf(stderr, ", mask %#010x", thread.mask);
  std::fputc('\n', stderr);
}

}  // namespace

void Die(const char* message) {
  std::fprintf(stderr, "cuda_on_cpu: %s\n", message);
  std::abort();
}

void ReportDeadlock(const Launch& launch, const std::vector<Block>& blocks) {
  ReportLaunch(launch);
  int lines_left = 64;
  for (const Block& block : blocks) {
    unsigned first = 0;
    for (unsigned i = 1; i <= block.count && lines_left > 0; ++i) {
      if (i < block.count && SameState(block.threads[i], block.threads[first])) continue;
      ReportThreads(block, first, i - 1);
      first = i;
      --lines_left;
    }
  }
  Die("deadlock: no thread of the cluster can go on");
}

void ReportThread(const Launch& launch, const Thread& thread, Meeting meeting, unsigned mask) {
  ReportLaunch(launch);
  std::fprintf(stderr, "  block (%u, %u, %u) thread (%u, %u, %u), lane %u", thread.block->index.x,
               thread.block->index.y, thread.block->index.z, thread.index.x, thread.index.y, thread.index.z,
               thread.lane);
  if (OfLanes(meeting)) std::fprintf(stderr, ": %s, mask %#010x", NameOf(meeting), mask);
  std::fputc('\n', stderr);
}

}  // namespace cuda_on_cpu
