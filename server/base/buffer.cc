#include "server/base/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>

namespace normd {
namespace {

// Stands before the data of every block.
struct alignas(Buffer::kAlignment) Header {
  std::shared_ptr<BufferPool> pool;  // null: the block belongs to no pool, or is idle
  size_t size_class = 0;
};

Header* HeaderOf(void* data) { return reinterpret_cast<Header*>(static_cast<std::byte*>(data) - sizeof(Header)); }

size_t BytesWithHeader(size_t size_bytes) {
  return sizeof(Header) + (size_bytes + Buffer::kAlignment - 1) / Buffer::kAlignment * Buffer::kAlignment;
}

// Makes a header at the start of `memory` and returns the address behind the header.
void* WithHeader(void* memory) {
  return static_cast<std::byte*>(static_cast<void*>(new (memory) Header())) + sizeof(Header);
}

void* AllocateFromMalloc(size_t size_bytes) {
  void* const memory = std::aligned_alloc(Buffer::kAlignment, BytesWithHeader(size_bytes));
  if (memory == nullptr) std::abort();
  return WithHeader(memory);
}

void ReleaseToMalloc(void* data) {
  Header* const header = HeaderOf(data);
  header->~Header();
  std::free(header);
}

// Class 4 e + q holds up to (4 + q) 2^(e-2) bytes: there are four classes from each power of two to the next.
size_t ClassOf(size_t size_bytes) {
  const auto e = static_cast<size_t>(std::bit_width(size_bytes - 1)) - 1;
  const size_t step = e - 2;
  return 4 * e + ((size_bytes - 1) >> step) - 4 + 1;
}

size_t CapacityOf(size_t size_class) { return (4 + size_class % 4) * (size_t{1} << (size_class / 4 - 2)); }

bool IsMapped(size_t size_class) { return CapacityOf(size_class) >= BufferPool::kMinMappedBytes; }

}  // namespace

Buffer::Buffer(size_t size_bytes)
    : data_(size_bytes == 0 ? nullptr : static_cast<std::byte*>(AllocateFromMalloc(size_bytes))),
      size_bytes_(size_bytes) {}

void Buffer::Free(void* data) {
  if (data == nullptr) return;
  // The header gives up its reference before the pool takes the block, because idle blocks must not keep the pool
  // alive.
  const std::shared_ptr<BufferPool> pool = std::move(HeaderOf(data)->pool);
  if (pool == nullptr) return ReleaseToMalloc(data);
  std::vector<void*> dropped;
  if (!pool->KeepIdle(data, HeaderOf(data)->size_class, &dropped)) pool->Release(data);
  for (void* other : dropped) pool->Release(other);
}

std::shared_ptr<BufferPool> BufferPool::Create(int64_t max_idle_bytes, int64_t max_total_bytes) {
  return std::shared_ptr<BufferPool>(new BufferPool(max_idle_bytes, max_total_bytes));
}

BufferPool::~BufferPool() {
  for (const std::vector<void*>& blocks : idle_) {
    for (void* block : blocks) Release(block);
  }
}

void* BufferPool::Allocate(size_t size_class) {
  void* block = nullptr;
  total_bytes_.fetch_add(static_cast<int64_t>(CapacityOf(size_class)), std::memory_order_relaxed);
  if (IsMapped(size_class)) {
    const size_t bytes = BytesWithHeader(CapacityOf(size_class));
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    mapped_bytes_.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
    block = WithHeader(memory);
  } else {
    block = AllocateFromMalloc(CapacityOf(size_class));
  }
  HeaderOf(block)->size_class = size_class;
  return block;
}

void BufferPool::Release(void* block) {
  Header* const header = HeaderOf(block);
  const size_t size_class = header->size_class;
  total_bytes_.fetch_sub(static_cast<int64_t>(CapacityOf(size_class)), std::memory_order_relaxed);
  if (!IsMapped(size_class)) return ReleaseToMalloc(block);
  const size_t bytes = BytesWithHeader(CapacityOf(size_class));
  header->~Header();
  munmap(header, bytes);
  mapped_bytes_.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
}

Buffer BufferPool::Take(size_t size_bytes) {
  if (size_bytes < kMinPooledBytes) return Buffer(size_bytes);
  const size_t size_class = ClassOf(size_bytes);
  void* block = TakeIdle(size_class);
  if (block == nullptr) {
    // Idle blocks that were kept beyond the usual bound give way to those that are needed.
    std::vector<void*> dropped;
    {
      MutexLock lock(mu_);
      const auto capacity = static_cast<int64_t>(CapacityOf(size_class));
      MakeRoom(0, total_bytes_.load(std::memory_order_relaxed) + capacity, size_class, &dropped);
    }
    for (void* other : dropped) Release(other);
    block = Allocate(size_class);
  }
  HeaderOf(block)->pool = shared_from_this();
  return Buffer(static_cast<std::byte*>(block), size_bytes);
}

int64_t BufferPool::idle_bytes() const {
  MutexLock lock(mu_);
  return idle_bytes_;
}

void BufferPool::DropIdle() {
  std::vector<void*> dropped;
  {
    MutexLock lock(mu_);
    for (std::vector<void*>& blocks : idle_) {
      dropped.insert(dropped.end(), blocks.begin(), blocks.end());
      blocks.clear();
    }
    idle_bytes_ = 0;
  }
  for (void* block : dropped) Release(block);
}

void* BufferPool::TakeIdle(size_t size_class) {
  MutexLock lock(mu_);
  std::vector<void*>& blocks = idle_[size_class];
  if (blocks.empty()) return nullptr;
  void* const block = blocks.back();
  blocks.pop_back();
  idle_bytes_ -= static_cast<int64_t>(CapacityOf(size_class));
  return block;
}

bool BufferPool::MakeRoom(int64_t capacity, int64_t total_bytes, size_t size_class, std::vector<void*>* dropped) {
  const auto fits = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return idle_bytes_ + capacity <= max_idle_bytes_ || total_bytes <= max_total_bytes_;
  };
  for (size_t other = 0; other < kClasses && !fits(); ++other) {
    if (other == size_class) continue;
    while (!idle_[other].empty() && !fits()) {
      dropped->push_back(idle_[other].back());
      idle_[other].pop_back();
      idle_bytes_ -= static_cast<int64_t>(CapacityOf(other));
      total_bytes -= static_cast<int64_t>(CapacityOf(other));
    }
  }
  return fits();
}

bool BufferPool::KeepIdle(void* block, size_t size_class, std::vector<void*>* dropped) {
  const auto capacity = static_cast<int64_t>(CapacityOf(size_class));
  if (capacity > std::max(max_idle_bytes_, max_total_bytes_)) return false;
  MutexLock lock(mu_);
  // Idle blocks of other classes make room, so that classes no longer in use do not fill the pool.
  if (!MakeRoom(capacity, total_bytes_.load(std::memory_order_relaxed), size_class, dropped)) return false;
  idle_bytes_ += capacity;
  idle_[size_class].push_back(block);
  return true;
}

}  // namespace normd
