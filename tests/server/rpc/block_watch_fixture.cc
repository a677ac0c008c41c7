#include "tests/server/rpc/block_watch_fixture.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "absl/base/config.h"

namespace normd {
namespace {

// What malloc itself uses: constants, so that it works before anything is constructed.
constinit std::atomic<size_t> watched_bytes{SIZE_MAX};  // SIZE_MAX: nobody watches
constinit std::atomic<size_t> copied_bytes{0};
constinit std::atomic<size_t> seen{0};
constinit std::array<std::atomic<size_t>, 64> sizes{};

}  // namespace

BlockWatch::BlockWatch(size_t at_least_bytes) {
  seen = 0;
  copied_bytes = 0;
  watched_bytes = at_least_bytes;
}

BlockWatch::~BlockWatch() { watched_bytes = SIZE_MAX; }

std::vector<size_t> BlockWatch::Allocations() const {
  return {sizes.begin(), sizes.begin() + static_cast<ptrdiff_t>(std::min(seen.load(), sizes.size()))};
}

size_t BlockWatch::CopiedBytes() const { return copied_bytes; }

#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER)

bool BlockWatch::Works() { return false; }

#else

bool BlockWatch::Works() { return true; }

namespace {

void NoteAllocation(size_t size) {
  if (size < watched_bytes.load(std::memory_order_relaxed)) return;
  const size_t index = seen.fetch_add(1);
  if (index < sizes.size()) sizes[index] = size;
}

void NoteCopy(size_t size) {
  if (watched_bytes.load(std::memory_order_relaxed) != SIZE_MAX) copied_bytes += size;
}

}  // namespace

// glibc's own, under names that the program does not replace. The checked copies with no limit to check are the plain
// ones; under these names, the compiler does not know that.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* block, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void* NormdLibcCopy(void* to, const void* from, size_t size, size_t limit) __asm__("__memcpy_chk");
void* NormdLibcMove(void* to, const void* from, size_t size, size_t limit) __asm__("__memmove_chk");

void* malloc(size_t size) noexcept {
  NoteAllocation(size);
  return __libc_malloc(size);
}

void* calloc(size_t count, size_t size) noexcept {
  NoteAllocation(count * size);
  return __libc_calloc(count, size);
}

void* realloc(void* block, size_t size) noexcept {
  NoteAllocation(size);
  return __libc_realloc(block, size);
}

void* aligned_alloc(size_t alignment, size_t size) noexcept {
  NoteAllocation(size);
  return __libc_memalign(alignment, size);
}

void* memalign(size_t alignment, size_t size) noexcept {
  NoteAllocation(size);
  return __libc_memalign(alignment, size);
}

int posix_memalign(void** block, size_t alignment, size_t size) noexcept {
  NoteAllocation(size);
  void* const result = __libc_memalign(alignment, size);
  if (result == nullptr) return ENOMEM;
  *block = result;
  return 0;
}

void* memcpy(void* to, const void* from, size_t size) noexcept {
  NoteCopy(size);
  return NormdLibcCopy(to, from, size, SIZE_MAX);
}

void* memmove(void* to, const void* from, size_t size) noexcept {
  NoteCopy(size);
  return NormdLibcMove(to, from, size, SIZE_MAX);
}
}

#endif

}  // namespace normd
