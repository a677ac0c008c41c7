// Owned, uninitialised, 64-byte-aligned blocks of bytes, which hold the outputs of calls on their way to the wire and
// tensors that are gathered into one piece. Large blocks come from a pool and go back to it, so that a request of the
// usual size costs no page faults and no system call. The largest are mapped, so that the pool can give them back
// completely: memory freed to malloc may stay at the top of an arena, which malloc_trim does not reach.
// Threads: a Buffer is move-only and thread-compatible; a BufferPool is safe from any thread.
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
  // Allocates with malloc. `size_bytes` may be 0. Aborts when memory is exhausted, and only then.
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

  // Passes ownership of the block to the caller, who must end it with Free.
  std::byte* release() {
    size_bytes_ = 0;
    return std::exchange(data_, nullptr);
  }
  // Returns a block to its pool or to malloc. `data` may be null.
  static void Free(void* data);

 private:
  friend class BufferPool;
  Buffer(std::byte* data, size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}

  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
};

// Blocks in use keep their pool alive, because the transport may keep a block longer than the server lives.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  // The pool keeps idle blocks of at most `max_idle_bytes`. It keeps more while all its blocks, in use and idle, have
  // at most `max_total_bytes`: where so much is used at times anyway, blocks that are kept cost no memory at the peak.
  static std::shared_ptr<BufferPool> Create(int64_t max_idle_bytes, int64_t max_total_bytes = 0);
  ~BufferPool();

  // Returns a block of at least `size_bytes`, which the pool takes back if that is kMinPooledBytes or more. The
  // contents are not initialised.
  Buffer Take(size_t size_bytes);

  int64_t idle_bytes() const;
  // The bytes of all mapped blocks, in use or idle.
  int64_t mapped_bytes() const { return mapped_bytes_.load(std::memory_order_relaxed); }
  // Frees all idle blocks.
  void DropIdle();

  // Below this size, malloc is as fast, and a block is not worth taking a lock.
  static constexpr size_t kMinPooledBytes = 32 << 10;
  // Blocks of this size or more are mapped.
  static constexpr size_t kMinMappedBytes = 1 << 20;

 private:
  friend class Buffer;
  // Four size classes for each power of two, up to 2^48, so that at most a fifth of a block is unused.
  static constexpr size_t kClasses = 4 * 48;

  BufferPool(int64_t max_idle_bytes, int64_t max_total_bytes)
      : max_idle_bytes_(max_idle_bytes), max_total_bytes_(max_total_bytes) {}
  // Allocates a new block of a size class, and frees a block.
  void* Allocate(size_t size_class);
  void Release(void* block);
  // Takes an idle block of the class; null when there is none.
  void* TakeIdle(size_t size_class);
  // Adds `block` to the idle blocks, or returns false when the caller must free it. Either way, the caller frees
  // `dropped`: idle blocks of other classes that made room.
  bool KeepIdle(void* block, size_t size_class, std::vector<void*>* dropped);
  // Takes idle blocks of other classes than `size_class` out, for the caller to free, until `capacity` idle bytes more
  // may be kept beside `total_bytes` of all blocks. Returns whether they may.
  bool MakeRoom(int64_t capacity, int64_t total_bytes, size_t size_class, std::vector<void*>* dropped)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t max_idle_bytes_;
  const int64_t max_total_bytes_;
  std::atomic<int64_t> mapped_bytes_ = 0;
  std::atomic<int64_t> total_bytes_ = 0;  // of all blocks, in use and idle
  mutable Mutex mu_;
  std::array<std::vector<void*>, kClasses> idle_ ABSL_GUARDED_BY(mu_);  // stacks: last in, first out
  int64_t idle_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace normd

#endif  // NORMD_SERVER_BASE_BUFFER_H_
