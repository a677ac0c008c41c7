#include "client/cpp/shared_region.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/shared_arena.h"
#include "tests/client/fake_registrar.h"

namespace normd::client {
namespace {

using ::testing::HasSubstr;

int64_t CountDescriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

// A server that registers everything, as r-1, r-2, ...
FakeRegistrar::Answer Accepts() {
  auto count = std::make_shared<std::atomic<int>>(0);
  return [count](const wire::ShmRequest&, int) { return FakeRegistrar::Reply(0, "r-" + std::to_string(++*count)); };
}

TEST(SharedRegion, SharesASealedObjectOfWholePages) {
  int64_t object_bytes = 0, asked_bytes = 0;
  int seals = 0;
  FakeRegistrar server([&](const wire::ShmRequest& request, int object) {
    struct stat info {};
    if (fstat(object, &info) == 0) object_bytes = info.st_size;
    asked_bytes = static_cast<int64_t>(request.size_bytes);
    seals = fcntl(object, F_GET_SEALS);
    if (pwrite(object, "x", 1, 4096) != 1) return std::string();
    return FakeRegistrar::Reply(0, "r-1");
  });
  const absl::StatusOr<std::unique_ptr<SharedRegion>> region = SharedRegion::Create(server.target(), 4097);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ((*region)->name(), "r-1");
  EXPECT_EQ((*region)->size_bytes(), 8192);
  EXPECT_EQ(object_bytes, 8192);
  EXPECT_EQ(asked_bytes, 8192);
  EXPECT_EQ(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_EQ((*region)->data()[4096], std::byte{'x'});
  EXPECT_EQ((*region)->data()[0], std::byte{0});
}

TEST(SharedRegion, ClosesItsConnectionAndEverythingElseWhenItGoes) {
  FakeRegistrar server(Accepts());
  const int64_t before = CountDescriptors();
  {
    const absl::StatusOr<std::unique_ptr<SharedRegion>> region =
        SharedRegion::Create("unix://" + server.path(), 1);  // gRPC's other form
    ASSERT_TRUE(region.ok()) << region.status();
    EXPECT_EQ(CountDescriptors(), before + 2);  // both ends of the connection
    EXPECT_FALSE(server.Closed(0));
  }
  EXPECT_EQ(CountDescriptors(), before + 1);
  EXPECT_TRUE(server.Closed(0));
}

TEST(SharedRegion, IsUnavailableWhereNoServerTakesRegistrations) {
  EXPECT_EQ(SharedRegion::Create("unix:/tmp/normd-test-none/socket", 1).status().code(),
            absl::StatusCode::kUnavailable);
  std::string target;
  {
    FakeRegistrar server(Accepts());
    target = server.target();
  }
  EXPECT_EQ(SharedRegion::Create(target, 1).status().code(), absl::StatusCode::kUnavailable);
}

TEST(SharedRegion, IsUnavailableWhenTheServerDoesNotAnswerInTime) {
  std::atomic<bool> done = false;
  FakeRegistrar server([&](const wire::ShmRequest&, int) {
    while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return std::string();
  });
  const int64_t before = CountDescriptors();
  const absl::Status status = SharedRegion::Create(server.target(), 1, absl::Milliseconds(50)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("in time"));
  EXPECT_LE(CountDescriptors(), before + 2);  // the server's
  done = true;
}

TEST(SharedRegion, IsUnavailableWhenTheServerHangsUp) {
  FakeRegistrar server([](const wire::ShmRequest&, int) { return std::string(); });
  EXPECT_EQ(SharedRegion::Create(server.target(), 1).status().code(), absl::StatusCode::kUnavailable);
}

TEST(SharedRegion, PassesOnWhatTheServerSays) {
  FakeRegistrar server(
      [](const wire::ShmRequest&, int) { return FakeRegistrar::Reply(8, "", "regions: over the limit"); });
  const absl::Status status = SharedRegion::Create(server.target(), 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "regions: over the limit");
}

// Bytes of memory behind an object.
int64_t TakenBytes(int object) {
  struct stat info {};
  EXPECT_EQ(fstat(object, &info), 0);
  return info.st_blocks * 512;
}

TEST(SharedRegion, HasTakenItsPagesBeforeTheServerIsAsked) {
  int64_t taken = -1;
  FakeRegistrar server([&](const wire::ShmRequest&, int object) {
    taken = TakenBytes(object);
    return FakeRegistrar::Reply(0, "r-1");
  });
  const absl::StatusOr<std::unique_ptr<SharedRegion>> region = SharedRegion::Create(server.target(), 1 << 20);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ(taken, 1 << 20);
}

TEST(SharedRegion, RefusesRepliesThatAreNone) {
  std::string wrong_magic = FakeRegistrar::Reply(0, "r-1");
  wrong_magic[0] = 'x';
  for (const std::string& reply :
       std::vector<std::string>{"x", wrong_magic, FakeRegistrar::Reply(0, "r-1") + "x", FakeRegistrar::Reply(0, "")}) {
    FakeRegistrar server([&](const wire::ShmRequest&, int) { return reply; });
    EXPECT_EQ(SharedRegion::Create(server.target(), 1).status().code(), absl::StatusCode::kInternal) << reply.size();
  }
}

TEST(SharedRegion, RefusesTargetsAndSizesThatAreNone) {
  FakeRegistrar server(Accepts());
  for (const int64_t size_bytes : {int64_t{0}, int64_t{-1}, INT64_MIN, INT64_MAX}) {
    EXPECT_EQ(SharedRegion::Create(server.target(), size_bytes).status().code(), absl::StatusCode::kInvalidArgument);
  }
  for (const std::string& target :
       std::vector<std::string>{"", "unix:", "localhost:8001", server.path(), "unix:/" + std::string(103, 'x')}) {
    EXPECT_EQ(SharedRegion::Create(target, 1).status().code(), absl::StatusCode::kInvalidArgument) << target;
  }
}

TEST(SharedArena, CarvesBlocksThatDoNotOverlapOutOfOneRegion) {
  FakeRegistrar server(Accepts());
  const std::unique_ptr<SharedArena> arena = *SharedArena::Create(server.target(), {.region_bytes = 1 << 20});
  std::vector<SharedBlock> blocks;
  for (const int64_t size_bytes : {1, 64, 65, 4095, 4096, 4097, 100000}) {
    absl::StatusOr<SharedBlock> block = arena->Allocate(size_bytes);
    ASSERT_TRUE(block.ok()) << block.status();
    EXPECT_EQ(block->size_bytes(), size_bytes);
    EXPECT_EQ(block->region(), "r-1");
    EXPECT_EQ(block->offset() % 64, 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block->data()) % 64, 0u);
    std::memset(block->data(), static_cast<int>(blocks.size()) + 1, static_cast<size_t>(size_bytes));
    blocks.push_back(*std::move(block));
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (int64_t at = 0; at < blocks[i].size_bytes(); ++at) {
      ASSERT_EQ(blocks[i].data()[at], static_cast<std::byte>(i + 1)) << i << " at " << at;
    }
  }
}

TEST(SharedArena, KeepsNeighboursApartWithinThePage) {
  FakeRegistrar server(Accepts());
  const std::unique_ptr<SharedArena> arena = *SharedArena::Create(server.target(), {.region_bytes = 1 << 20});
  std::vector<SharedBlock> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(*arena->Allocate(65536));
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (size_t j = i + 1; j < blocks.size() && j < i + 3; ++j) {
      const int64_t apart = (blocks[j].offset() - blocks[i].offset()) % 4096;
      EXPECT_GE(apart, 832) << i << " and " << j;
      EXPECT_LE(apart, 4096 - 832) << i << " and " << j;
    }
  }
}

TEST(SharedArena, UsesFreedBlocksAgainAndJoinsThem) {
  FakeRegistrar server(Accepts());
  SharedArenaOptions options{.region_bytes = 64 << 10, .max_total_bytes = 64 << 10};
  const std::unique_ptr<SharedArena> arena = *SharedArena::Create(server.target(), options);
  for (int round = 0; round < 3; ++round) {
    std::vector<SharedBlock> blocks;
    while (true) {
      absl::StatusOr<SharedBlock> block = arena->Allocate(1000);
      if (!block.ok()) {
        EXPECT_EQ(block.status().code(), absl::StatusCode::kResourceExhausted);
        break;
      }
      blocks.push_back(*std::move(block));
    }
    EXPECT_EQ(blocks.size(), 64u);
    for (size_t i = 0; i < blocks.size(); i += 2) blocks[i] = SharedBlock();
    EXPECT_FALSE(arena->Allocate(2000).ok());
    blocks[1] = SharedBlock();
    EXPECT_TRUE(arena->Allocate(3000).ok());
  }
  EXPECT_TRUE(arena->Allocate(56 << 10).ok());
}

TEST(SharedArena, GrowsByRegionsUpToItsLimit) {
  FakeRegistrar server(Accepts());
  SharedArenaOptions options{.region_bytes = 64 << 10, .max_total_bytes = 256 << 10};
  const std::unique_ptr<SharedArena> arena = *SharedArena::Create(server.target(), options);
  const SharedBlock small = *arena->Allocate(1000);
  const SharedBlock large = *arena->Allocate(100 << 10);  // a region of its own
  EXPECT_EQ(small.region(), "r-1");
  EXPECT_EQ(large.region(), "r-2");
  EXPECT_EQ(arena->Allocate(200 << 10).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(arena->Allocate(0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(arena->Allocate(INT64_MAX).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(arena->Allocate(1000).ok());
}

TEST(SharedArena, LetsBlocksMoveAndOutliveIt) {
  FakeRegistrar server(Accepts());
  std::unique_ptr<SharedArena> arena = *SharedArena::Create(server.target(), {.region_bytes = 64 << 10});
  SharedBlock block = *arena->Allocate(100);
  arena.reset();
  const SharedBlock moved = std::move(block);
  moved.data()[99] = std::byte{1};
  EXPECT_EQ(moved.region(), "r-1");
  EXPECT_FALSE(server.Closed(0));
}

TEST(SharedArena, PassesOnThatThereIsNoServer) {
  EXPECT_EQ(SharedArena::Create("unix:/tmp/normd-test-none/socket").status().code(), absl::StatusCode::kUnavailable);
}

TEST(SharedArena, IsSafeFromManyThreads) {
  FakeRegistrar server(Accepts());
  const std::unique_ptr<SharedArena> arena = *SharedArena::Create(server.target(), {.region_bytes = 64 << 10});
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&arena, mark = static_cast<std::byte>(thread + 1)] {
      for (int i = 0; i < 500; ++i) {
        const absl::StatusOr<SharedBlock> one = arena->Allocate(1 + i * 37 % 9000), two = arena->Allocate(100);
        ASSERT_TRUE(one.ok() && two.ok());
        std::memset(one->data(), static_cast<int>(mark), static_cast<size_t>(one->size_bytes()));
        std::this_thread::yield();
        ASSERT_EQ(one->data()[one->size_bytes() - 1], mark);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace normd::client
