#include "tests/support/failing_new.h"

#include <atomic>
#include <new>

namespace normd {
namespace {

std::atomic<size_t> failing_bytes = 0;  // 0: none
std::atomic<int64_t> failures_of_new = 0;

}  // namespace

FailingNew::FailingNew(size_t size_bytes) {
  failures_of_new = 0;
  failing_bytes = size_bytes;
}

FailingNew::~FailingNew() { failing_bytes = 0; }

int64_t FailingNew::failures() const { return failures_of_new; }

}  // namespace normd

// The library's call the functions without brackets, too, so a sanitizer goes on seeing every allocation.
void* operator new[](size_t size) {
  if (size != 0 && size == normd::failing_bytes.load(std::memory_order_relaxed)) {
    ++normd::failures_of_new;
    throw std::bad_alloc();
  }
  return ::operator new(size);
}
void operator delete[](void* memory) noexcept { ::operator delete(memory); }
void operator delete[](void* memory, size_t /*size*/) noexcept { ::operator delete(memory); }
