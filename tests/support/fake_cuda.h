// CUDA's memory shared between processes, without a device. An allocation has two mappings: one for its owner (and for
// kernels, which take device addresses to it with OnDevice), and while a handle is open one that nobody can access:
// host code that follows an address of the device dies of it.
// Stricter than the driver: a handle that is open cannot be opened again. Threads: safe from any thread.
#ifndef NORMD_TESTS_SUPPORT_FAKE_CUDA_H_
#define NORMD_TESTS_SUPPORT_FAKE_CUDA_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
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

 private:
  struct Allocation {
    int64_t size_bytes = 0;
    int object = -1;
    std::byte* owned = nullptr;
    std::byte* open = nullptr;  // null: closed
  };

  mutable std::mutex mu_;
  std::map<std::string, Allocation, std::less<>> allocations_;
  int opened_ = 0, closed_ = 0;
};

}  // namespace normd

#endif  // NORMD_TESTS_SUPPORT_FAKE_CUDA_H_
