#include "server/base/buffer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

namespace normd {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

bool IsAligned(const Buffer& buffer) { return reinterpret_cast<uintptr_t>(buffer.data()) % Buffer::kAlignment == 0; }

TEST(BufferTest, IsAlignedAndAsLargeAsAsked) {
  const auto pool = BufferPool::Create(64 * kMiB);
  for (const size_t size :
       {size_t{1}, size_t{63}, size_t{64}, size_t{32767}, size_t{32768}, size_t{32769}, size_t{40960}, size_t{40961},
        size_t{65535}, kMiB - 1, kMiB, kMiB + 1, 5 * kMiB / 4, 5 * kMiB / 4 + 1}) {
    for (Buffer& buffer : std::vector<Buffer>([&] {
           std::vector<Buffer> both;
           both.push_back(Buffer(size));
           both.push_back(pool->Take(size));
           return both;
         }())) {
      ASSERT_EQ(buffer.size_bytes(), size);
      EXPECT_TRUE(IsAligned(buffer)) << size;
      std::memset(buffer.data(), 1, size);  // the sanitizer sees a block that is too small
    }
  }
}

TEST(BufferTest, OfNoBytesHasNoBlock) {
  EXPECT_EQ(Buffer(0).data(), nullptr);
  EXPECT_EQ(BufferPool::Create(kMiB)->Take(0).data(), nullptr);
}

TEST(BufferPoolTest, HandsTheSameBlockOutAgain) {
  const auto pool = BufferPool::Create(4 * kMiB);
  const std::byte* first = nullptr;
  {
    const Buffer buffer = pool->Take(kMiB);
    first = buffer.data();
    EXPECT_EQ(pool->idle_bytes(), 0);
  }
  EXPECT_GE(pool->idle_bytes(), static_cast<int64_t>(kMiB));
  const Buffer again = pool->Take(kMiB - 100);  // the same class
  EXPECT_EQ(again.data(), first);
  EXPECT_EQ(pool->idle_bytes(), 0);
}

TEST(BufferPoolTest, KeepsNoMoreThanItMay) {
  const auto pool = BufferPool::Create(2 * kMiB);
  {
    std::vector<Buffer> buffers;
    for (int i = 0; i < 8; ++i) buffers.push_back(pool->Take(kMiB));
  }
  EXPECT_LE(pool->idle_bytes(), static_cast<int64_t>(2 * kMiB));
  EXPECT_GT(pool->idle_bytes(), 0);
}

TEST(BufferPoolTest, IdleSizesMakeRoomForSizesInUse) {
  const auto pool = BufferPool::Create(4 * kMiB);
  {
    std::vector<Buffer> small;
    for (int i = 0; i < 16; ++i) small.push_back(pool->Take(kMiB / 4));
  }
  const std::byte* first = nullptr;
  {
    const Buffer large = pool->Take(3 * kMiB);
    first = large.data();
  }
  EXPECT_LE(pool->idle_bytes(), static_cast<int64_t>(4 * kMiB));
  EXPECT_EQ(pool->Take(3 * kMiB).data(), first);
}

TEST(BufferPoolTest, KeepsMoreWhereAllBlocksTogetherAreFew) {
  const auto pool = BufferPool::Create(2 * kMiB, 16 * kMiB);
  const auto take_and_free = [&pool](size_t blocks) {
    std::vector<Buffer> buffers;
    for (size_t i = 0; i < blocks; ++i) buffers.push_back(pool->Take(kMiB));
  };
  take_and_free(16);
  EXPECT_EQ(pool->idle_bytes(), static_cast<int64_t>(16 * kMiB));
  take_and_free(32);
  EXPECT_LE(pool->idle_bytes(), static_cast<int64_t>(16 * kMiB));
  EXPECT_GT(pool->idle_bytes(), static_cast<int64_t>(8 * kMiB));
  // A block of another size comes in the place of idle ones, not beside them.
  const Buffer large = pool->Take(8 * kMiB);
  EXPECT_LE(pool->idle_bytes(), static_cast<int64_t>(8 * kMiB));
  const Buffer largest = pool->Take(32 * kMiB);
  EXPECT_LE(pool->idle_bytes(), static_cast<int64_t>(2 * kMiB)) << "the usual bound holds again";
}

TEST(BufferPoolTest, MapsTheLargestBlocksAndUnmapsThem) {
  const auto pool = BufferPool::Create(16 * kMiB);
  {
    const Buffer malloced = pool->Take(kMiB / 2);
    EXPECT_EQ(pool->mapped_bytes(), 0);
    const Buffer mapped = pool->Take(8 * kMiB);
    EXPECT_GT(pool->mapped_bytes(), static_cast<int64_t>(8 * kMiB));
    const Buffer more_than_it_keeps = pool->Take(32 * kMiB);
    EXPECT_GT(pool->mapped_bytes(), static_cast<int64_t>(40 * kMiB));
  }
  EXPECT_GT(pool->mapped_bytes(), static_cast<int64_t>(8 * kMiB)) << "an idle block stays mapped";
  EXPECT_LT(pool->mapped_bytes(), static_cast<int64_t>(16 * kMiB));
  pool->DropIdle();
  EXPECT_EQ(pool->mapped_bytes(), 0);
}

TEST(BufferPoolTest, LeavesSmallBlocksToMalloc) {
  const auto pool = BufferPool::Create(kMiB);
  pool->Take(BufferPool::kMinPooledBytes - 1);
  EXPECT_EQ(pool->idle_bytes(), 0);
}

TEST(BufferPoolTest, LivesAsLongAsItsBlocks) {
  auto pool = BufferPool::Create(4 * kMiB);
  std::weak_ptr<BufferPool> seen = pool;
  std::byte* data = pool->Take(kMiB).release();
  pool.reset();
  EXPECT_FALSE(seen.expired());
  Buffer::Free(data);
  EXPECT_TRUE(seen.expired());
}

TEST(BufferPoolTest, ServesSeveralThreads) {
  const auto pool = BufferPool::Create(kMiB);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 2000; ++i) {
        Buffer buffer = pool->Take(BufferPool::kMinPooledBytes + static_cast<size_t>(i % 7) * 4096);
        std::memset(buffer.data(), t, 64);
        ASSERT_EQ(static_cast<int>(buffer.data()[63]), t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace normd
