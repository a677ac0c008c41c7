// CUDA's memory and events shared between processes, without a device. An allocation has two mappings: one for its
// owner (and for kernels, which take device addresses to it with OnDevice), and while a handle is open one that nobody
// can access: host code that follows an address of the device dies of it. An event that is recorded completes when the
// test says so.
// Stricter than the driver: a handle that is open cannot be opened again. Threads: safe from any thread.
#ifndef NORMD_TESTS_SUPPORT_FAKE_CUDA_H_
#define NORMD_TESTS_SUPPORT_FAKE_CUDA_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

namespace normd {

class FakeCuda {
 public:
  FakeCuda() = default;
  ~FakeCuda();
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  // What the owner has: 64 bytes that name a new allocation, of zeros; and the memory itself.
  std::string Allocate(int64_t size_bytes);
  std::byte* Owned(std::string_view handle);

  // What the driver does in the other process. INVALID_ARGUMENT for a handle that is unknown, or open; `fail_open` if
  // that is not ok.
  struct Opened {
    std::byte* data = nullptr;
    int64_t size_bytes = 0;
  };
  absl::StatusOr<Opened> Open(std::string_view handle, int device);
  void Close(const std::byte* data);
  absl::Status fail_open;  // set while nobody opens

  // Where a kernel finds the byte at `address`; null for addresses that are not the device's.
  std::byte* OnDevice(const void* address);

  int opened() const;    // so far
  int open_now() const;  // not closed yet

  // What the owner does: 64 bytes that name a new event, which was never recorded; its record; its completion.
  std::string CreateEvent();
  void Record(std::string_view handle);
  void Complete(std::string_view handle);
  // What the driver does in the other process, where a handle may be opened any number of times.
  absl::StatusOr<void*> OpenEvent(std::string_view handle, int device);
  absl::StatusOr<bool> IsEventCompleted(const void* event);
  void CloseEvent(void* event);

  int events_opened() const;    // so far
  int events_open_now() const;  // not closed yet
  int64_t event_queries() const;

 private:
  struct Allocation {
    int64_t size_bytes = 0;
    int object = -1;
    std::byte* owned = nullptr;
    std::byte* open = nullptr;  // null: closed
  };

  struct Event {
    bool recorded = false;
    bool completed = false;
  };

  mutable std::mutex mu_;
  std::map<std::string, Allocation, std::less<>> allocations_;
  int opened_ = 0, closed_ = 0;
  std::map<std::string, Event, std::less<>> events_;  // never moved: open events point to them
  std::multiset<const void*> open_events_;
  int events_opened_ = 0;
  int64_t event_queries_ = 0;
};

}  // namespace normd

#endif  // NORMD_TESTS_SUPPORT_FAKE_CUDA_H_
