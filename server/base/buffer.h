// Owned, uninitialised, 64-byte-aligned blocks of bytes: outputs of calls on their way to the wire, and tensors that
// are put together. Large ones come from a pool and go back to it, so that a request of the usual size costs no page
// faults and no trip to the system. The largest are mapped, so that the pool can give all of them back: what is freed
// to malloc may stay at the top of an arena, where malloc_trim does not reach. A Buffer is move-only and
// thread-compatible; a BufferPool is safe from any thread.
#ifndef NORMD_SERVER_BASE_BUFFER_H_
#define NORMD_SERVER_BASE_BUFFER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "server/base/mutex.h"

namespace normd {

class BufferPool;

class Buffer {
 public:
  static constexpr size_t kAlignment = 64;

  Buffer() = default;
  // From malloc. `size_bytes` may be 0. Aborts only when memory is exhausted, like operator new.
  explicit Buffer(size_t size_bytes);
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  ~Buffer() { Free(data_); }

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }

  // Gives the block up; end it with Free.
  std::byte* release() {
    size_bytes_ = 0;
    return std::exchange(data_, nullptr);
  }
  // Back to where the block is from. `data` may be null.
  static void Free(void* data);

 private:
  friend class BufferPool;
  Buffer(std::byte* data, size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}

  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
};

// Blocks that are in use keep the pool alive: the transport may hold one longer than the server lives.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  // Keeps at most `max_idle_bytes` that nobody uses.
  static std::shared_ptr<BufferPool> Create(int64_t max_idle_bytes);
  ~BufferPool();

  // A block for `size_bytes`, of the pool from kMinPooledBytes on. Contents are not initialised.
  Buffer Take(size_t size_bytes);

  int64_t idle_bytes() const;
  // Of blocks that are mapped, whether they are used or not.
  int64_t mapped_bytes() const { return mapped_bytes_.load(std::memory_order_relaxed); }
  // Frees the blocks that nobody uses.
  void DropIdle();

  // Below, malloc is as fast, and its blocks are not worth a lock.
  static constexpr size_t kMinPooledBytes = 32 << 10;
  // From here on blocks are mapped.
  static constexpr size_t kMinMappedBytes = 1 << 20;

 private:
  friend class Buffer;
  // Four sizes for each power of two, up to 2^48: at most a fifth of a block is not used.
  static constexpr size_t kClasses = 4 * 48;

  explicit BufferPool(int64_t max_idle_bytes) : max_idle_bytes_(max_idle_bytes) {}
  // A new block for a size class, and its end.
  void* Allocate(size_t size_class);
  void Release(void* block);
  // Takes an idle block, or returns null.
  void* TakeIdle(size_t size_class);
  // False when it is to be freed. So are the blocks of other sizes that made room for it.
  bool KeepIdle(void* block, size_t size_class, std::vector<void*>* dropped);

  const int64_t max_idle_bytes_;
  std::atomic<int64_t> mapped_bytes_ = 0;
  mutable Mutex mu_;
  std::array<std::vector<void*>, kClasses> idle_ ABSL_GUARDED_BY(mu_);  // the last one back is the next to go
  int64_t idle_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace normd

#endif  // NORMD_SERVER_BASE_BUFFER_H_
