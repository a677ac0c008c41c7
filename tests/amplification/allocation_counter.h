// Counts what the threads of the process allocate, but for those that say that they are the peer. Two files implement
// it: allocation_counter_fixture.cc, which replaces malloc, so that what nghttp2 and OpenSSL allocate is seen, too, and
// allocation_hooks.cc for programs that have a sanitizer, whose malloc has hooks.
// Threads: safe from any thread.
#ifndef NORMD_TESTS_AMPLIFICATION_ALLOCATION_COUNTER_H_
#define NORMD_TESTS_AMPLIFICATION_ALLOCATION_COUNTER_H_

#include <atomic>
#include <cstdint>

namespace normd {

// Constant-initialised, because malloc runs before everything else.
struct AllocationCounts {
  std::atomic<int64_t> allocated_bytes{0};
  std::atomic<int64_t> live_bytes{0};
  std::atomic<int64_t> peak_bytes{0};  // the most live_bytes there was

  void Add(int64_t bytes) {
    allocated_bytes.fetch_add(bytes, std::memory_order_relaxed);
    const int64_t live = live_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t peak = peak_bytes.load(std::memory_order_relaxed);
    while (live > peak && !peak_bytes.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
    }
  }
  void Remove(int64_t bytes) { live_bytes.fetch_sub(bytes, std::memory_order_relaxed); }
};

AllocationCounts& Allocations();

// From now on the calling thread's allocations are not counted: it is the peer.
void LeaveOutThisThread();

}  // namespace normd

#endif  // NORMD_TESTS_AMPLIFICATION_ALLOCATION_COUNTER_H_
