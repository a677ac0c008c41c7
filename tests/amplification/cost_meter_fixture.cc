#include <dlfcn.h>
#include <nghttp2/nghttp2.h>

#include <atomic>
#include <ctime>

#include "tests/amplification/allocation_counter.h"
#include "tests/amplification/cost_meter.h"

namespace normd {
namespace {

std::atomic<int64_t> shown_bytes{0};
std::atomic<nghttp2_on_header_callback> shown_to{nullptr};

int CountField(nghttp2_session* session, const nghttp2_frame* frame, const uint8_t* name, size_t name_size,
               const uint8_t* value, size_t value_size, uint8_t flags, void* user_data) {
  shown_bytes.fetch_add(static_cast<int64_t>(name_size + value_size), std::memory_order_relaxed);
  return shown_to.load()(session, frame, name, name_size, value, value_size, flags, user_data);
}

int64_t Nanoseconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return int64_t{1'000'000'000} * time.tv_sec + time.tv_nsec;
}

int64_t ServersNanoseconds() { return Nanoseconds(CLOCK_PROCESS_CPUTIME_ID) - Nanoseconds(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace

CostMeter::CostMeter() {
  LeaveOutThisThread();
  AllocationCounts& allocations = Allocations();
  allocated_bytes_ = allocations.allocated_bytes.load();
  live_bytes_ = allocations.live_bytes.load();
  allocations.peak_bytes.store(live_bytes_);
  shown_bytes_ = shown_bytes.load();
  cpu_ns_ = ServersNanoseconds();
}

Cost CostMeter::Read() const {
  const AllocationCounts& allocations = Allocations();
  return {.cpu_ns = static_cast<double>(ServersNanoseconds() - cpu_ns_),
          .allocated_bytes = static_cast<double>(allocations.allocated_bytes.load() - allocated_bytes_),
          .peak_bytes = static_cast<double>(allocations.peak_bytes.load() - live_bytes_),
          .shown_bytes = static_cast<double>(shown_bytes.load() - shown_bytes_)};
}

}  // namespace normd

// In the place of the library's: the transport's callback is called through one that counts. All sessions of a process
// have the same.
extern "C" void nghttp2_session_callbacks_set_on_header_callback(nghttp2_session_callbacks* callbacks,
                                                                 nghttp2_on_header_callback callback) {
  using Set = void (*)(nghttp2_session_callbacks*, nghttp2_on_header_callback);
  static const auto set = reinterpret_cast<Set>(dlsym(RTLD_NEXT, "nghttp2_session_callbacks_set_on_header_callback"));
  normd::shown_to = callback;
  set(callbacks, normd::CountField);
}
