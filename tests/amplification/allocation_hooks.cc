// The counter of allocations for programs with a sanitizer, which the fuzzer of cost is.
#include <sanitizer/allocator_interface.h>

#include <cstddef>

#include "tests/amplification/allocation_counter.h"

namespace normd {
namespace {

constinit AllocationCounts counts;
constinit thread_local bool is_peer = false;

void OnMalloc(const volatile void* /*block*/, size_t size) {
  if (!is_peer) counts.Add(static_cast<int64_t>(size));
}

void OnFree(const volatile void* block) {
  if (block != nullptr && !is_peer) counts.Remove(static_cast<int64_t>(__sanitizer_get_allocated_size(block)));
}

}  // namespace

AllocationCounts& Allocations() {
  [[maybe_unused]] static const int installed = __sanitizer_install_malloc_and_free_hooks(OnMalloc, OnFree);
  return counts;
}

void LeaveOutThisThread() { is_peer = true; }

}  // namespace normd
