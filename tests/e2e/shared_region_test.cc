// The client's shared memory against the server's own registrar.
#include "client/cpp/shared_region.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/shared_arena.h"
#include "server/shm/region_table.h"
#include "server/shm/registrar.h"

namespace normd {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kPage = 4096;

class SharedRegionEndToEnd : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/normd-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    absl::StatusOr<std::unique_ptr<Registrar>> registrar =
        Registrar::Start({.socket_path = folder_ + "/normd.sock.shm", .max_connections = 4}, &table_);
    ASSERT_TRUE(registrar.ok()) << registrar.status();
    registrar_ = *std::move(registrar);
  }
  void TearDown() override {
    registrar_.reset();
    rmdir(folder_.c_str());
  }

  std::string Target() const { return "unix:" + folder_ + "/normd.sock"; }

  static RegionLimits Limits() {
    RegionLimits limits;
    limits.max_region_bytes = 64 * kPage;
    return limits;
  }

  std::string folder_;
  RegionTable table_{Limits()};
  std::unique_ptr<Registrar> registrar_;
};

TEST_F(SharedRegionEndToEnd, SharesBytesBothWaysWithoutAGuard) {
  const auto region = client::SharedRegion::Create(Target(), 2 * kPage);
  ASSERT_TRUE(region.ok()) << region.status();
  (*region)->data()[kPage] = std::byte{5};
  const absl::StatusOr<RegionRange> range = table_.Acquire(/*tenant=*/"", (*region)->name(), kPage, kPage);
  ASSERT_TRUE(range.ok()) << range.status();
  EXPECT_TRUE(range->pin->sealed());
  EXPECT_EQ(range->data[0], std::byte{5});
  range->data[1] = std::byte{6};
  EXPECT_EQ((*region)->data()[kPage + 1], std::byte{6});
}

TEST_F(SharedRegionEndToEnd, UnregistersWhenTheRegionGoes) {
  client::SharedRegion::Create(Target(), kPage).value().reset();
  for (int i = 0; i < 4000 && table_.stats().regions != 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(table_.stats().regions, 0);
}

TEST_F(SharedRegionEndToEnd, TellsTheClientWhichLimitItMet) {
  const absl::Status size = client::SharedRegion::Create(Target(), 65 * kPage).status();
  EXPECT_EQ(size.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(size.message()), HasSubstr("size_bytes is 266240; it must be 1 to 262144"));
  std::vector<std::unique_ptr<client::SharedRegion>> regions;
  for (int i = 0; i < 4; ++i) regions.push_back(client::SharedRegion::Create(Target(), kPage).value());
  // Refused as soon as it connects, at whatever moment its request is on the way.
  for (int i = 0; i < 50; ++i) {
    const absl::Status connections = client::SharedRegion::Create(Target(), kPage).status();
    EXPECT_EQ(connections.code(), absl::StatusCode::kResourceExhausted) << connections;
  }
}

TEST_F(SharedRegionEndToEnd, AcquiresTheBlocksOfAnArena) {
  const auto arena = client::SharedArena::Create(Target(), {.region_bytes = 64 * kPage});
  ASSERT_TRUE(arena.ok()) << arena.status();
  const client::SharedBlock block = (*arena)->Allocate(10000).value();
  const absl::StatusOr<RegionRange> range = table_.Acquire(
      /*tenant=*/"", block.region(), static_cast<uint64_t>(block.offset()), static_cast<uint64_t>(block.size_bytes()));
  ASSERT_TRUE(range.ok()) << range.status();
  range->data[9999] = std::byte{7};
  EXPECT_EQ(block.data()[9999], std::byte{7});
}

}  // namespace
}  // namespace normd
