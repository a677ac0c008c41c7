#include "server/shm/mapped_region.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "tests/server/shm/fixtures.h"

namespace normd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kLimit = 64 * kPage;
using Result = absl::StatusOr<std::unique_ptr<MappedRegion>>;

std::string FieldOf(const absl::Status& status) {
  return GetErrorDetail(status).value_or(ErrorDetail{.field = "none"}).field;
}

TEST(MappedRegion, SharesTheBytesOfASealedObjectAndClosesItsDescriptor) {
  UniqueFd memory = MakeSealedMemory(3 * kPage);
  const UniqueFd mine = Duplicate(memory);
  const int64_t before = CountDescriptors();
  const Result region = MappedRegion::FromDescriptor(std::move(memory), 3 * kPage, kLimit);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ(CountDescriptors(), before - 1);
  EXPECT_TRUE((*region)->sealed());
  EXPECT_FALSE((*region)->truncated());
  EXPECT_TRUE((*region)->CheckNotTruncated().ok());
  ASSERT_EQ(pwrite(mine.get(), "x", 1, 2 * kPage), 1);
  EXPECT_EQ((*region)->data()[2 * kPage], std::byte{'x'});
  (*region)->data()[1] = std::byte{'y'};
  char byte = 0;
  ASSERT_EQ(pread(mine.get(), &byte, 1, 1), 1);
  EXPECT_EQ(byte, 'y');
}

TEST(MappedRegion, IsReadyForItsFirstUseWhereTheClientHasTakenThePages) {
  UniqueFd memory = MakeSealedMemory(kLimit);
  ASSERT_EQ(fallocate(memory.get(), 0, 0, kLimit), 0);
  const Result region = MappedRegion::FromDescriptor(std::move(memory), kLimit, kLimit);
  ASSERT_TRUE(region.ok());
  EXPECT_EQ(MappedPagesKib((*region)->data()), kLimit / 1024);
}

TEST(MappedRegion, TakesNoPagesThatTheClientHasNot) {
  UniqueFd memory = MakeSealedMemory(kLimit);
  const UniqueFd mine = Duplicate(memory);
  ASSERT_EQ(fallocate(mine.get(), 0, 0, kLimit - kPage), 0);
  const Result region = MappedRegion::FromDescriptor(std::move(memory), kLimit, kLimit);
  ASSERT_TRUE(region.ok());
  EXPECT_EQ(MappedPagesKib((*region)->data()), 0);
  struct stat info {};
  ASSERT_EQ(fstat(mine.get(), &info), 0);
  EXPECT_EQ(info.st_blocks * 512, kLimit - kPage);
}

TEST(MappedRegion, MapsAPartThatIsNotWholePages) {
  const Result region = MappedRegion::FromDescriptor(MakeSealedMemory(2 * kPage), 100, kLimit);
  ASSERT_TRUE(region.ok());
  EXPECT_EQ((*region)->size_bytes(), 100);
  EXPECT_EQ((*region)->data()[99], std::byte{0});
}

TEST(MappedRegion, GoesWithItsMappingAndItsDescriptor) {
  const int64_t descriptors = CountDescriptors();
  const int mappings = CountMappings("memfd:normd-test");
  {
    const Result region = MappedRegion::FromDescriptor(MakeMemory(kPage), kPage, kLimit);
    ASSERT_TRUE(region.ok());
    EXPECT_FALSE((*region)->sealed());
    EXPECT_EQ(CountDescriptors(), descriptors + 1);  // kept, to look its size up
    EXPECT_EQ(CountMappings("memfd:normd-test"), mappings + 1);
  }
  EXPECT_EQ(CountDescriptors(), descriptors);
  EXPECT_EQ(CountMappings("memfd:normd-test"), mappings);
}

TEST(MappedRegion, IsRefusedFurtherUseWhenAnUnsealedObjectShrinks) {
  UniqueFd memory = MakeMemory(2 * kPage);
  const UniqueFd mine = Duplicate(memory);
  const Result region = MappedRegion::FromDescriptor(std::move(memory), 2 * kPage, kLimit);
  ASSERT_TRUE(region.ok());
  EXPECT_TRUE((*region)->CheckNotTruncated().ok());
  ASSERT_EQ(ftruncate(mine.get(), 2 * kPage - 1), 0);
  EXPECT_EQ((*region)->CheckNotTruncated().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE((*region)->truncated());  // nothing was touched
  ASSERT_EQ(ftruncate(mine.get(), 2 * kPage), 0);
  EXPECT_TRUE((*region)->CheckNotTruncated().ok());
}

TEST(MappedRegion, StaysRefusedOnceAnAccessMetTheCut) {
  UniqueFd memory = MakeMemory(2 * kPage);
  const UniqueFd mine = Duplicate(memory);
  const Result region = MappedRegion::FromDescriptor(std::move(memory), 2 * kPage, kLimit);
  ASSERT_TRUE(region.ok());
  ASSERT_EQ(ftruncate(mine.get(), 0), 0);
  EXPECT_EQ(Load((*region)->data() + kPage), 0);
  EXPECT_TRUE((*region)->truncated());
  ASSERT_EQ(ftruncate(mine.get(), 2 * kPage), 0);
  EXPECT_EQ((*region)->CheckNotTruncated().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetErrorDetail((*region)->CheckNotTruncated())->reason, "REGION_TRUNCATED");
}

// A page of a sealed object for which the system has no memory: made here by a mapping of nothing in its place.
TEST(MappedRegion, OfASealedObjectSurvivesAPageWithoutMemory) {
  const auto region = MappedRegion::FromDescriptor(MakeSealedMemory(2 * kPage), 2 * kPage, kLimit);
  ASSERT_TRUE(region.ok()) << region.status();
  ASSERT_TRUE((*region)->sealed());
  const UniqueFd nothing = MakeMemory(0);
  ASSERT_NE(mmap((*region)->data(), kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, nothing.get(), 0),
            MAP_FAILED);
  EXPECT_TRUE((*region)->CheckNotTruncated().ok());
  EXPECT_EQ(Load((*region)->data()), 0);
  EXPECT_TRUE((*region)->truncated());
  EXPECT_EQ((*region)->CheckNotTruncated().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(MappedRegion, RefusesSizesOutOfRangeAndNamesThem) {
  const int64_t before = CountDescriptors();
  for (const uint64_t size_bytes : {uint64_t{0}, uint64_t{kPage + 1}, uint64_t{kLimit + 1}, UINT64_MAX}) {
    const absl::Status status = MappedRegion::FromDescriptor(MakeMemory(kPage), size_bytes, kLimit).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(FieldOf(status), "size_bytes");
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(size_bytes)));
  }
  EXPECT_EQ(CountDescriptors(), before);
}

// A descriptor that has to be refused, and its name.
struct Unsuitable {
  std::string what;
  UniqueFd fd;
};

std::vector<Unsuitable> UnsuitableDescriptors() {
  std::vector<Unsuitable> all;
  int pipe_ends[2] = {-1, -1};
  EXPECT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  all.push_back({"pipe", UniqueFd(pipe_ends[0])});
  all.push_back({"pipe's other end", UniqueFd(pipe_ends[1])});
  all.push_back({"none", UniqueFd()});
  all.push_back({"socket", UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0))});
  for (const std::string path : {"/tmp", "/dev/zero", "/dev/null", "/proc/self/maps", "/dev/shm"}) {
    all.push_back({path, UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC))});
  }
  UniqueFd memory = MakeMemory(kPage);
  const std::string self = absl::StrCat("/proc/self/fd/", memory.get());
  all.push_back({"read-only memory", UniqueFd(open(self.c_str(), O_RDONLY | O_CLOEXEC))});
  all.push_back({"path only", UniqueFd(open(self.c_str(), O_PATH | O_CLOEXEC))});
  all.push_back({"sealed against writing", MakeMemory(kPage, F_SEAL_SHRINK | F_SEAL_WRITE)});
  return all;
}

TEST(MappedRegion, RefusesDescriptorsOfAnythingButMemory) {
  const int64_t before = CountDescriptors();
  for (Unsuitable& unsuitable : UnsuitableDescriptors()) {
    SCOPED_TRACE(unsuitable.what);
    EXPECT_EQ(unsuitable.fd.valid(), unsuitable.what != "none");
    const absl::Status status = MappedRegion::FromDescriptor(std::move(unsuitable.fd), kPage, kLimit).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(FieldOf(status), ::testing::AnyOf("descriptor", "size_bytes"));
  }
  EXPECT_EQ(CountDescriptors(), before);
}

TEST(MappedRegion, RefusesAFolderInMemory) {
  UniqueFd folder(open("/dev/shm", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(folder.valid());
  const absl::Status status = MappedRegion::FromDescriptor(std::move(folder), 1, kLimit).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("not a regular file"));
}

TEST(MappedRegion, RefusesARegularFileThatIsNotInMemory) {
  UniqueFd file(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(file.valid());
  const absl::Status status = MappedRegion::FromDescriptor(std::move(file), kPage, kLimit).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("a file that is not in memory"));
}

class PosixName : public ::testing::Test {
 protected:
  void SetUp() override {
    const UniqueFd object(shm_open(name_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
    ASSERT_TRUE(object.valid());
    ASSERT_EQ(ftruncate(object.get(), kPage), 0);
  }
  void TearDown() override { shm_unlink(name_.c_str()); }

  static Result Map(std::string_view name, const std::vector<std::string>& prefixes = {"/other-", "/normd-test-"}) {
    return MappedRegion::FromPosixName(name, prefixes, kPage, kLimit);
  }

  const std::string name_ = absl::StrCat("/normd-test-", getpid());
};

TEST_F(PosixName, MapsAnObjectWithAnAllowedPrefix) {
  const Result region = Map(name_);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_FALSE((*region)->sealed());
  EXPECT_EQ((*region)->data()[0], std::byte{0});
}

TEST_F(PosixName, RefusesEveryOtherFormAndPrefixWithoutSayingTheName) {
  const int64_t before = CountDescriptors();
  const std::string bare = name_.substr(1);
  for (const std::string& name : std::vector<std::string>{
           std::string(), std::string("/"), std::string("/."), std::string("/.."), bare, "/" + name_,
           "/normd-test-/../x", "/../dev/shm" + name_, name_ + "/", "/normd-test-" + std::string(300, 'x'),
           name_ + std::string("\0x", 2), std::string("/secret-1")}) {
    const absl::Status status = Map(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(FieldOf(status), "posix_name");
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr(bare)));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("secret")));
  }
  EXPECT_EQ(Map(name_, {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CountDescriptors(), before);
}

TEST_F(PosixName, SaysWhenThereIsNoSuchObject) {
  const absl::Status status = Map("/normd-test-none").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("normd-test-none")));
}

TEST_F(PosixName, DoesNotFollowALink) {
  const std::string link = absl::StrCat("/dev/shm/normd-test-link-", getpid());
  ASSERT_EQ(symlink(("/dev/shm" + name_).c_str(), link.c_str()), 0);
  EXPECT_EQ(Map(link.substr(8)).status().code(), absl::StatusCode::kNotFound);
  unlink(link.c_str());
}

}  // namespace
}  // namespace normd
