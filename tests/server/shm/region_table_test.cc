#include "server/shm/region_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/errors.h"
#include "tests/server/shm/fixtures.h"

namespace normd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RegionLimits SmallLimits() {
  RegionLimits limits;
  limits.max_region_bytes = 4 * kPage;
  limits.max_total_bytes = 10 * kPage;
  limits.max_owner_bytes = 6 * kPage;
  limits.max_regions = 4;
  limits.max_owner_regions = 3;
  return limits;
}

std::string AddPages(RegionTable& table, std::string_view owner, int64_t pages) {
  const absl::StatusOr<std::string> name =
      table.AddDescriptor(owner, MakeSealedMemory(pages * kPage), static_cast<uint64_t>(pages * kPage));
  return name.ok() ? *name : absl::StrCat("error: ", name.status().ToString());
}

TEST(RegionTable, GivesNamesThatNobodyCanGuess) {
  RegionTable table{RegionLimits()};
  std::set<std::string> names;
  for (int i = 0; i < 20; ++i) names.insert(AddPages(table, "a", 1));
  EXPECT_EQ(names.size(), 20u);
  for (const std::string& name : names) {
    EXPECT_EQ(name.size(), 34u);
    EXPECT_TRUE(name.starts_with("r-")) << name;
    EXPECT_EQ(name.find_first_not_of("0123456789abcdef", 2), std::string::npos) << name;
  }
}

TEST(RegionTable, AcquiresRangesWithinARegion) {
  RegionTable table{RegionLimits()};
  const std::string name = AddPages(table, "a", 2);
  const absl::StatusOr<RegionRange> all = table.Acquire(/*tenant=*/"", name, 0, 2 * kPage);
  ASSERT_TRUE(all.ok()) << all.status();
  all->data[kPage + 5] = std::byte{9};
  const absl::StatusOr<RegionRange> part = table.Acquire(/*tenant=*/"", name, kPage + 5, 3);
  ASSERT_TRUE(part.ok());
  EXPECT_EQ(part->size_bytes, 3);
  EXPECT_EQ(part->data[0], std::byte{9});
  EXPECT_FALSE(part->truncated());
  EXPECT_TRUE(table.Acquire(/*tenant=*/"", name, 2 * kPage, 0).ok());
}

TEST(RegionTable, RefusesRangesThatLeaveTheRegionAndNamesFieldValueAndLimit) {
  RegionTable table{RegionLimits()};
  const std::string name = AddPages(table, "a", 2);
  const uint64_t size = 2 * kPage;
  struct Case {
    uint64_t offset, size_bytes;
    std::string field, limit;
  };
  for (const Case& bad : {Case{0, size + 1, "size_bytes", "at most 8192"}, Case{1, size, "size_bytes", "at most 8191"},
                          Case{size, 1, "size_bytes", "at most 0"}, Case{size + 1, 0, "offset", "at most 8192"},
                          Case{UINT64_MAX, 2, "offset", "at most 8192"}, Case{2, UINT64_MAX, "size_bytes", "8190"},
                          Case{UINT64_MAX, UINT64_MAX, "offset", "at most 8192"}}) {
    const absl::Status status = table.Acquire(/*tenant=*/"", name, bad.offset, bad.size_bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    const std::optional<ErrorDetail> detail = GetErrorDetail(status);
    ASSERT_TRUE(detail.has_value());
    EXPECT_EQ(detail->field, bad.field);
    EXPECT_EQ(detail->value, absl::StrCat(bad.field == "offset" ? bad.offset : bad.size_bytes));
    EXPECT_THAT(detail->limit, HasSubstr(bad.limit));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr(name)));
  }
}

TEST(RegionTable, DoesNotRepeatNamesThatItDoesNotKnow) {
  RegionTable table{RegionLimits()};
  for (const absl::Status& status :
       {table.Acquire(/*tenant=*/"", "r-secret", 0, 1).status(), table.Remove("a", "r-secret")}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("secret")));
  }
  EXPECT_FALSE(table.Acquire(/*tenant=*/"", "", 0, 0).ok());
}

TEST(RegionTable, UnmapsARemovedRegionWhenItsLastRangeGoes) {
  RegionTable table{RegionLimits()};
  const int before = CountMappings("memfd:normd-test");
  const std::string name = AddPages(table, "a", 1);
  std::optional<RegionRange> one = *table.Acquire(/*tenant=*/"", name, 0, 1),
                             two = *table.Acquire(/*tenant=*/"", name, 1, 1);
  EXPECT_TRUE(table.Remove("a", name).ok());
  EXPECT_FALSE(table.Acquire(/*tenant=*/"", name, 0, 1).ok());
  one.reset();
  two->data[0] = std::byte{1};
  EXPECT_EQ(table.stats().regions, 1);
  EXPECT_EQ(CountMappings("memfd:normd-test"), before + 1);
  two.reset();
  EXPECT_EQ(table.stats().regions, 0);
  EXPECT_EQ(table.stats().bytes, 0);
  EXPECT_EQ(CountMappings("memfd:normd-test"), before);
}

TEST(RegionTable, RangesOutliveTheTable) {
  std::optional<RegionTable> table{RegionLimits()};
  const RegionRange range = *table->Acquire(/*tenant=*/"", AddPages(*table, "a", 1), 0, kPage);
  table.reset();
  range.data[kPage - 1] = std::byte{1};
}

TEST(RegionTable, RemovesOnlyTheOwnersRegions) {
  RegionTable table{RegionLimits()};
  const std::string a1 = AddPages(table, "a", 1), a2 = AddPages(table, "a", 1), b = AddPages(table, "b", 1);
  EXPECT_EQ(table.Remove("b", a1).code(), absl::StatusCode::kNotFound);
  table.RemoveOwner("a");
  table.RemoveOwner("nobody");
  EXPECT_FALSE(table.Acquire(/*tenant=*/"", a1, 0, 1).ok());
  EXPECT_FALSE(table.Acquire(/*tenant=*/"", a2, 0, 1).ok());
  EXPECT_TRUE(table.Acquire(/*tenant=*/"", b, 0, 1).ok());
  EXPECT_EQ(table.stats().regions, 1);
  EXPECT_EQ(table.stats().bytes, kPage);
}

TEST(RegionTable, ShowsARegionToTheTenantOfItsOwnerAlone) {
  RegionTable table{RegionLimits()};
  const std::string name = *table.AddDescriptor({"a", "vision"}, MakeSealedMemory(kPage), kPage);
  EXPECT_TRUE(table.Acquire("vision", name, 0, 1).ok());
  for (const char* other : {"", "visio", "vision2"}) {
    const absl::Status status = table.Acquire(other, name, 0, 1).status();
    EXPECT_EQ(status, table.Acquire(other, "r-unknown", 0, 1).status()) << "as if it did not exist";
  }
  const std::string plain = AddPages(table, "a", 1);
  EXPECT_FALSE(table.Acquire("vision", plain, 0, 1).ok());
}

TEST(RegionTable, CountsRegionsAgainstTheQuotasOfTheTenantUntilTheyAreUnmapped) {
  TenantQuotaTable quotas;
  quotas.Set({{"vision", {.max_regions = 2, .max_region_bytes = 3 * kPage}}});
  RegionTable table({.quotas = &quotas});
  const auto add = [&](const char* owner, int64_t pages) {
    return table.AddDescriptor({owner, "vision"}, MakeSealedMemory(pages * kPage),
                               static_cast<uint64_t>(pages * kPage));
  };
  EXPECT_THAT(add("a", 4).status().message(),
              HasSubstr("bytes of the tenant's regions would be 16384, over the limit"));
  const std::string first = *add("a", 1);
  ASSERT_TRUE(add("b", 1).ok()) << "another owner of the tenant";
  EXPECT_THAT(add("c", 1).status().message(), HasSubstr("regions of the tenant would be 3, over the limit of 2"));
  EXPECT_TRUE(AddPages(table, "a", 8).starts_with("r-")) << "others are not affected";
  std::optional<RegionRange> range = *table.Acquire("vision", first, 0, 1);
  ASSERT_TRUE(table.Remove("a", first).ok());
  EXPECT_FALSE(add("c", 1).ok()) << "still mapped";
  range.reset();
  EXPECT_TRUE(add("c", 1).ok());
}

TEST(RegionTable, BoundsRegionsAndBytesInAllAndPerOwner) {
  RegionTable table(SmallLimits());
  EXPECT_THAT(AddPages(table, "a", 5), HasSubstr("size_bytes is 20480; it must be 1 to 16384"));
  EXPECT_TRUE(AddPages(table, "a", 4).starts_with("r-"));
  EXPECT_THAT(AddPages(table, "a", 3), HasSubstr("bytes of one owner's regions would be 28672, over the limit of"));
  EXPECT_TRUE(AddPages(table, "a", 1).starts_with("r-"));
  const std::string last = AddPages(table, "a", 1);
  EXPECT_TRUE(last.starts_with("r-"));
  EXPECT_THAT(AddPages(table, "a", 1),
              HasSubstr("regions of one owner would be 4, over the limit of 3 (set by --max_regions of the server)"));
  EXPECT_TRUE(AddPages(table, "b", 4).starts_with("r-"));
  EXPECT_THAT(AddPages(table, "c", 1),
              HasSubstr("regions would be 5, over the limit of 4 (set by --max_regions of the server)"));
  EXPECT_EQ(table.stats().bytes, 10 * kPage);
  EXPECT_TRUE(table.Remove("a", last).ok());
  EXPECT_THAT(
      AddPages(table, "c", 2),
      HasSubstr(
          "bytes of all regions would be 45056, over the limit of 40960 (set by --max_region_bytes of the server)"));
  EXPECT_TRUE(AddPages(table, "c", 1).starts_with("r-"));
}

TEST(RegionTable, CountsARemovedRegionUntilItIsUnmapped) {
  RegionTable table(SmallLimits());
  const std::string name = AddPages(table, "a", 4);
  std::optional<RegionRange> range = *table.Acquire(/*tenant=*/"", name, 0, 1);
  EXPECT_TRUE(table.Remove("a", name).ok());
  EXPECT_THAT(AddPages(table, "a", 4), HasSubstr("over the limit"));
  range.reset();
  EXPECT_TRUE(AddPages(table, "a", 4).starts_with("r-"));
}

TEST(RegionTable, ChecksLimitsBeforeItLooksAtTheDescriptorAndGivesRoomBackAfterAFailure) {
  RegionTable table(SmallLimits());
  const int64_t before = CountDescriptors();
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(table.AddDescriptor("a", MakeMemory(kPage), 2 * kPage).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(table.stats().regions, 0);
  EXPECT_EQ(table.stats().bytes, 0);
  for (int i = 0; i < 3; ++i) AddPages(table, "a", 1);
  EXPECT_EQ(table.AddDescriptor("a", UniqueFd(), kPage).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(CountDescriptors(), before);
}

TEST(RegionTable, AddsPosixObjectsWithTheAllowedPrefixes) {
  RegionLimits limits;
  limits.posix_prefixes = {"/normd-table-"};
  RegionTable table(limits);
  const std::string posix_name = absl::StrCat("/normd-table-", getpid());
  const UniqueFd object(shm_open(posix_name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  ASSERT_EQ(ftruncate(object.get(), kPage), 0);
  const absl::StatusOr<std::string> name = table.AddPosixName("a", posix_name, kPage);
  EXPECT_EQ(table.AddPosixName("a", "/normd-other", kPage).status().code(), absl::StatusCode::kInvalidArgument);
  shm_unlink(posix_name.c_str());
  ASSERT_TRUE(name.ok()) << name.status();
  EXPECT_TRUE(table.Acquire(/*tenant=*/"", *name, 0, kPage).ok());
}

TEST(RegionTable, RefusesATruncatedRegionAndFailsItsUsers) {
  RegionTable table{RegionLimits()};
  UniqueFd memory = MakeMemory(2 * kPage);
  const UniqueFd mine = Duplicate(memory);
  const std::string name = *table.AddDescriptor("a", std::move(memory), 2 * kPage);
  const RegionRange range = *table.Acquire(/*tenant=*/"", name, kPage, kPage);
  ASSERT_EQ(ftruncate(mine.get(), 0), 0);
  EXPECT_FALSE(range.truncated());
  EXPECT_EQ(Load(range.data + 0), 0);
  EXPECT_TRUE(range.truncated());
  const absl::Status status = table.Acquire(/*tenant=*/"", name, 0, 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("truncated while in use"));
}

TEST(RegionTable, IsSafeFromManyThreads) {
  RegionTable table{RegionLimits()};
  const std::string lasting = AddPages(table, "lasting", 1);
  std::atomic<bool> done = false;
  std::vector<std::thread> users;
  for (int thread = 0; thread < 2; ++thread) {
    users.emplace_back([&] {
      while (!done) {
        const absl::StatusOr<RegionRange> range = table.Acquire(/*tenant=*/"", lasting, 8, 8);
        EXPECT_TRUE(range.ok() && !range->truncated());
        EXPECT_GE(table.stats().regions, 1);
      }
    });
  }
  std::vector<std::thread> owners;
  for (int thread = 0; thread < 3; ++thread) {
    owners.emplace_back([&table, owner = absl::StrCat("owner-", thread)] {
      for (int i = 0; i < 200; ++i) {
        const absl::StatusOr<std::string> name = table.AddDescriptor(owner, MakeMemory(kPage), kPage);
        ASSERT_TRUE(name.ok()) << name.status();
        const absl::StatusOr<RegionRange> range = table.Acquire(/*tenant=*/"", *name, 0, kPage);
        ASSERT_TRUE(range.ok());
        if (i % 2 == 0) {
          EXPECT_TRUE(table.Remove(owner, *name).ok());
        } else {
          table.RemoveOwner(owner);
        }
        range->data[0] = std::byte{1};
      }
    });
  }
  for (std::thread& owner : owners) owner.join();
  done = true;
  for (std::thread& user : users) user.join();
  EXPECT_EQ(table.stats().regions, 1);
}

// A range that is the last to go, as of a request that ends on a thread which serves others, leaves unmapping to the
// pool; removing a region that nobody uses gives its room back before it returns.
TEST(RegionTable, TheLastRangeOfALargeRegionLeavesUnmappingToThePool) {
  constexpr int64_t kLarge = WorkPool::kLargeBytes;
  WorkPool pool(1);
  RegionTable table({}, {}, &pool);
  std::promise<void> go_on;
  pool.Run([&go_on] { go_on.get_future().wait(); });
  const std::string name = table.AddDescriptor("a", MakeSealedMemory(kLarge), kLarge).value();
  absl::StatusOr<RegionRange> range = table.Acquire(/*tenant=*/"", name, 0, kLarge);
  ASSERT_TRUE(range.ok()) << range.status();
  ASSERT_TRUE(table.Remove("a", name).ok());
  *range = RegionRange();
  EXPECT_EQ(table.stats().bytes, kLarge) << "the pool is busy";
  go_on.set_value();
  for (int i = 0; i < 4000 && table.stats().bytes != 0; ++i) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(table.stats().bytes, 0);

  const std::string unused = table.AddDescriptor("a", MakeSealedMemory(kLarge), kLarge).value();
  ASSERT_TRUE(table.Remove("a", unused).ok());
  EXPECT_EQ(table.stats().bytes, 0);
}

}  // namespace
}  // namespace normd
