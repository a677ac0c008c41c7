// An owned, uninitialised, 64-byte-aligned block of bytes: outputs of a call on their way to the wire.
// Move-only; thread-compatible.
#ifndef NORMD_SERVER_BASE_BUFFER_H_
#define NORMD_SERVER_BASE_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace normd {

class Buffer {
 public:
  static constexpr size_t kAlignment = 64;

  Buffer() = default;
  // `size_bytes` may be 0. Contents are not initialised. Aborts only when memory is exhausted, like operator new.
  explicit Buffer(size_t size_bytes)
      : data_(size_bytes == 0 ? nullptr
                              : static_cast<std::byte*>(std::aligned_alloc(
                                    kAlignment, (size_bytes + kAlignment - 1) / kAlignment * kAlignment))),
        size_bytes_(size_bytes) {
    if (size_bytes != 0 && data_ == nullptr) std::abort();
  }

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t size_bytes() const { return size_bytes_; }

  // Gives the block up; free it with std::free.
  std::byte* release() {
    size_bytes_ = 0;
    return data_.release();
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_bytes_ = 0;
};

}  // namespace normd

#endif  // NORMD_SERVER_BASE_BUFFER_H_
