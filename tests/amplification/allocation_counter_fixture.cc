// malloc and its like for the whole program, libraries included: the linker finds these before the C library's.
#include <malloc.h>

#include <cerrno>
#include <cstddef>

#include "tests/amplification/allocation_counter.h"

extern "C" {
void* __libc_malloc(size_t size);                      // NOLINT(bugprone-reserved-identifier): glibc's own names
void* __libc_calloc(size_t count, size_t size);        // NOLINT(bugprone-reserved-identifier)
void* __libc_realloc(void* block, size_t size);        // NOLINT(bugprone-reserved-identifier)
void* __libc_memalign(size_t alignment, size_t size);  // NOLINT(bugprone-reserved-identifier)
void __libc_free(void* block);                         // NOLINT(bugprone-reserved-identifier)
}

namespace normd {
namespace {

constinit AllocationCounts counts;
constinit thread_local bool is_peer = false;

void* Counted(void* block) {
  if (block != nullptr && !is_peer) counts.Add(static_cast<int64_t>(malloc_usable_size(block)));
  return block;
}

void CountEnd(void* block) {
  if (block != nullptr && !is_peer) counts.Remove(static_cast<int64_t>(malloc_usable_size(block)));
}

}  // namespace

AllocationCounts& Allocations() { return counts; }

void LeaveOutThisThread() { is_peer = true; }

}  // namespace normd

extern "C" {

void* malloc(size_t size) { return normd::Counted(__libc_malloc(size)); }

void* calloc(size_t count, size_t size) { return normd::Counted(__libc_calloc(count, size)); }

// Both blocks count while the bytes are copied, as they do where a block cannot grow in its place.
void* realloc(void* block, size_t size) {
  const size_t before = block == nullptr ? 0 : malloc_usable_size(block);
  void* const grown = __libc_realloc(block, size);
  if (grown == nullptr && size != 0) return nullptr;
  normd::Counted(grown);
  if (before != 0 && !normd::is_peer) normd::counts.Remove(static_cast<int64_t>(before));
  return grown;
}

void* memalign(size_t alignment, size_t size) { return normd::Counted(__libc_memalign(alignment, size)); }

void* aligned_alloc(size_t alignment, size_t size) { return normd::Counted(__libc_memalign(alignment, size)); }

int posix_memalign(void** block, size_t alignment, size_t size) {
  *block = normd::Counted(__libc_memalign(alignment, size));
  return *block == nullptr ? ENOMEM : 0;
}

void free(void* block) {
  normd::CountEnd(block);
  __libc_free(block);
}

}  // extern "C"
