// CUDA memory as regions of the table, over a driver that is a fake.
#include "server/shm/cuda_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/errors.h"
#include "kernels/tensor.h"
#include "server/shm/region_table.h"
#include "tests/server/shm/fixtures.h"
#include "tests/support/fake_cuda.h"

namespace normd {
namespace {

using ::testing::HasSubstr;

CudaOpener OpenerOver(FakeCuda* cuda) {
  return {.devices = {0, 2},
          .open = [cuda](std::string_view handle, int device) -> absl::StatusOr<CudaAllocation> {
            const absl::StatusOr<FakeCuda::Opened> opened = cuda->Open(handle, device);
            if (!opened.ok()) return opened.status();
            return CudaAllocation{opened->data, opened->size_bytes};
          },
          .close = [cuda](const CudaAllocation& allocation, int) { cuda->Close(allocation.data); },
          .open_event = [cuda](std::string_view handle, int device) { return cuda->OpenEvent(handle, device); },
          .close_event = [cuda](void* event, int) { cuda->CloseEvent(event); },
          .is_event_completed = [cuda](void* event, int) { return cuda->IsEventCompleted(event); }};
}

class CudaMemoryTest : public ::testing::Test {
 protected:
  RegionLimits Limits() {
    RegionLimits limits;
    limits.max_region_bytes = 4 * kPage;
    limits.max_owner_regions = 3;
    return limits;
  }
  std::string Add(const CudaRange& range, uint64_t size_bytes, std::string_view owner = "a") {
    const absl::StatusOr<std::string> name = table_.AddCuda(owner, range, size_bytes);
    return name.ok() ? *name : absl::StrCat("error: ", name.status().ToString());
  }
  // The field that a registration is refused for.
  std::string RefusedField(const CudaRange& range, uint64_t size_bytes) {
    const absl::Status status = table_.AddCuda("a", range, size_bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    const std::optional<ErrorDetail> detail = GetErrorDetail(status);
    return detail.has_value() ? detail->field : "";
  }

  FakeCuda cuda_;
  const std::string handle_ = cuda_.Allocate(4 * kPage);
  RegionTable table_{Limits(), OpenerOver(&cuda_)};
};

TEST_F(CudaMemoryTest, ARangeOfARegionLiesWhereTheHandleAndTheOffsetSay) {
  const std::string name = Add({handle_, 2, kPage}, 2 * kPage);
  const absl::StatusOr<RegionRange> range = table_.Acquire(/*tenant=*/"", name, 16, 32);
  ASSERT_TRUE(range.ok()) << name << range.status();
  EXPECT_EQ(range->space, CudaSpace(2));
  EXPECT_EQ(cuda_.OnDevice(range->data), cuda_.Owned(handle_) + kPage + 16);
  EXPECT_FALSE(range->truncated());
  EXPECT_EQ(table_.Acquire(/*tenant=*/"", name, 16, 2 * kPage).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(table_.stats().bytes, 2 * kPage);
  const std::string host = *table_.AddDescriptor("a", MakeSealedMemory(kPage), kPage);
  EXPECT_TRUE(table_.Acquire(/*tenant=*/"", host, 0, 1)->space.is_host());
}

TEST_F(CudaMemoryTest, AHandleIsOpenedOnceAndClosedWithTheLastRange) {
  const std::string one = Add({handle_, 0, 0}, kPage), two = Add({handle_, 0, kPage}, kPage, "b");
  EXPECT_EQ(cuda_.opened(), 1) << one << two;
  std::optional<RegionRange> range = *table_.Acquire(/*tenant=*/"", two, 0, 1);
  EXPECT_TRUE(table_.Remove("a", one).ok());
  table_.RemoveOwner("b");
  EXPECT_EQ(cuda_.open_now(), 1) << "a request still uses it";
  EXPECT_EQ(table_.stats().regions, 1);
  EXPECT_THAT(Add({handle_, 0, 0}, kPage), HasSubstr("r-"));
  range.reset();
  EXPECT_EQ(cuda_.open_now(), 1) << "it is registered again";
  EXPECT_EQ(cuda_.opened(), 1);
  table_.RemoveOwner("a");
  EXPECT_EQ(cuda_.open_now(), 0);
  EXPECT_EQ(table_.stats().regions, 0);
  EXPECT_THAT(Add({handle_, 0, 0}, kPage), HasSubstr("r-"));
  EXPECT_EQ(cuda_.opened(), 2) << "what was closed is opened anew";
  table_.RemoveOwner("a");
}

TEST_F(CudaMemoryTest, AnEventIsOpenedWithItsRegistrationAndClosedWithTheLastRange) {
  const std::string event = cuda_.CreateEvent();
  const std::string with = Add({handle_, 0, 0, event}, kPage), without = Add({handle_, 0, kPage}, kPage);
  EXPECT_EQ(cuda_.events_opened(), 1) << with << without;
  EXPECT_EQ(table_.Acquire(/*tenant=*/"", without, 0, 1)->event(), nullptr);
  std::optional<RegionRange> range = *table_.Acquire(/*tenant=*/"", with, 0, 1);
  ASSERT_NE(range->event(), nullptr);
  EXPECT_EQ(table_.Acquire(/*tenant=*/"", with, 8, 1)->event(), range->event());
  EXPECT_TRUE(*range->event()->completed()) << "it was never recorded";
  cuda_.Record(event);
  EXPECT_FALSE(*range->event()->completed());
  table_.RemoveOwner("a");
  EXPECT_EQ(cuda_.events_open_now(), 1) << "a request still waits for it";
  cuda_.Complete(event);
  EXPECT_TRUE(*range->event()->completed());
  range.reset();
  EXPECT_EQ(cuda_.events_open_now(), 0);
  EXPECT_EQ(cuda_.open_now(), 0);
}

TEST_F(CudaMemoryTest, EachRegistrationOpensTheEventForItself) {
  const std::string event = cuda_.CreateEvent();
  for (const char* owner : {"a", "b"}) EXPECT_THAT(Add({handle_, 0, 0, event}, kPage, owner), HasSubstr("r-"));
  EXPECT_EQ(cuda_.events_opened(), 2);
  table_.RemoveOwner("a");
  EXPECT_EQ(cuda_.events_open_now(), 1);
  table_.RemoveOwner("b");
  EXPECT_EQ(cuda_.events_open_now(), 0);
}

TEST_F(CudaMemoryTest, AnEventThatIsNoGoodLeavesNothingOpen) {
  for (const size_t length : {size_t{1}, size_t{63}, size_t{65}}) {
    EXPECT_THAT(Add({handle_, 0, 0, std::string(length, 'x')}, kPage),
                HasSubstr(absl::StrCat("cuda.event_handle has ", length, " bytes; it must have 64 bytes, or 0")));
  }
  EXPECT_EQ(cuda_.opened(), 0);
  EXPECT_THAT(Add({handle_, 0, 0, std::string(64, 'x')}, kPage), HasSubstr("no such event"));
  EXPECT_EQ(cuda_.opened(), 1);
  EXPECT_EQ(cuda_.open_now(), 0);
  EXPECT_EQ(table_.stats().regions, 0);
  EXPECT_EQ(RefusedField({handle_, 0, 4 * kPage + 1, cuda_.CreateEvent()}, 1), "cuda.offset");
  EXPECT_EQ(cuda_.events_opened(), 0);
}

TEST_F(CudaMemoryTest, RangesOutliveTheTable) {
  auto table = std::make_unique<RegionTable>(RegionLimits(), OpenerOver(&cuda_));
  std::optional<RegionRange> range =
      *table->Acquire(/*tenant=*/"", *table->AddCuda("a", {handle_, 0, 0}, kPage), 0, kPage);
  table.reset();
  EXPECT_EQ(cuda_.OnDevice(range->data), cuda_.Owned(handle_));
  range.reset();
  EXPECT_EQ(cuda_.open_now(), 0);
}

TEST_F(CudaMemoryTest, RefusesAHandleOfAnotherLengthAndNamesBoth) {
  for (const size_t length : {size_t{0}, size_t{1}, size_t{63}, size_t{65}}) {
    const std::string bad(length, 'x');
    EXPECT_THAT(Add({bad, 0, 0}, kPage),
                HasSubstr(absl::StrCat("cuda.ipc_handle has ", length, " bytes; it must have 64 bytes")));
  }
  EXPECT_EQ(cuda_.opened(), 0);
}

TEST_F(CudaMemoryTest, RefusesRangesThatLeaveTheAllocationAndClosesIt) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(RefusedField({handle_, 0, 4 * kPage + 1}, 1), "cuda.offset");
  EXPECT_EQ(RefusedField({handle_, 0, kMax}, 2), "cuda.offset");
  EXPECT_EQ(RefusedField({handle_, 0, kMax - kPage + 1}, kPage), "cuda.offset") << "the sum is 0";
  EXPECT_EQ(RefusedField({handle_, 0, 4 * kPage}, 1), "size_bytes");
  EXPECT_EQ(RefusedField({handle_, 0, 1}, 4 * kPage), "size_bytes");
  EXPECT_EQ(cuda_.opened(), 5);
  EXPECT_EQ(cuda_.open_now(), 0);
  EXPECT_EQ(table_.stats().regions, 0);
  EXPECT_THAT(Add({handle_, 0, 1}, 4 * kPage), HasSubstr("at most 16383, the rest of the allocation from offset 1"));
}

TEST_F(CudaMemoryTest, ChecksLimitsAndDeviceBeforeItOpens) {
  EXPECT_EQ(RefusedField({handle_, 0, 0}, 0), "size_bytes");
  EXPECT_EQ(RefusedField({handle_, 0, 0}, 4 * kPage + 1), "size_bytes");
  EXPECT_EQ(RefusedField({handle_, 1, 0}, kPage), "cuda.device");
  EXPECT_EQ(RefusedField({handle_, -1, 0}, kPage), "cuda.device");
  EXPECT_EQ(cuda_.opened(), 0);
  for (int i = 0; i < 3; ++i) Add({handle_, 0, 0}, kPage);
  const std::string other = cuda_.Allocate(kPage);
  EXPECT_THAT(Add({other, 0, 0}, kPage),
              HasSubstr("regions of one owner would be 4, over the limit of 3 (set by --max_regions of the server)"));
  EXPECT_EQ(cuda_.opened(), 1);
}

TEST_F(CudaMemoryTest, AHandleThatCannotBeOpenedLeavesNothingBehind) {
  cuda_.fail_open = absl::UnavailableError("the device is lost");
  for (int i = 0; i < 10; ++i) EXPECT_THAT(Add({handle_, 0, 0}, kPage), HasSubstr("the device is lost"));
  EXPECT_EQ(table_.stats().regions, 0);
  EXPECT_EQ(table_.stats().bytes, 0);
  cuda_.fail_open = absl::OkStatus();
  EXPECT_THAT(Add({handle_, 0, 0}, kPage), HasSubstr("r-"));
}

TEST_F(CudaMemoryTest, AHandleIsOpenOnOneDevice) {
  EXPECT_THAT(Add({handle_, 0, 0}, kPage), HasSubstr("r-"));
  EXPECT_THAT(Add({handle_, 2, 0}, kPage), HasSubstr("cuda.device is 2; it must be 0, which the handle"));
  table_.RemoveOwner("a");
  EXPECT_THAT(Add({handle_, 2, 0}, kPage), HasSubstr("r-"));
}

TEST_F(CudaMemoryTest, IsNotAvailableWithoutDevices) {
  RegionTable table{RegionLimits()};
  const absl::Status status = table.AddCuda("a", {handle_, 0, 0}, kPage).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetErrorDetail(status)->reason, "CUDA_NOT_AVAILABLE");
}

// The fake refuses to open what is open, so a registration that does not wait for another's opening or closing fails.
TEST_F(CudaMemoryTest, ManyThreadsOpenAndCloseAHandleOneAfterTheOther) {
  CudaOpener slow = OpenerOver(&cuda_);
  std::atomic<int> inside = 0;
  const auto linger = [&inside] {
    EXPECT_EQ(++inside, 1) << "two at a time";
    absl::SleepFor(absl::Microseconds(200));
    --inside;
  };
  slow.open = [open = slow.open, &linger](std::string_view handle, int device) {
    linger();
    return open(handle, device);
  };
  slow.close = [close = slow.close, &linger](const CudaAllocation& allocation, int device) {
    linger();
    close(allocation, device);
  };
  RegionTable table(RegionLimits(), slow);
  std::vector<std::thread> owners;
  for (int thread = 0; thread < 4; ++thread) {
    owners.emplace_back([&table, handle = handle_, owner = absl::StrCat("owner-", thread)] {
      for (int i = 0; i < 100; ++i) {
        const absl::StatusOr<std::string> name = table.AddCuda(owner, {handle, 0, 0}, kPage);
        ASSERT_TRUE(name.ok()) << name.status();
        EXPECT_TRUE(table.Acquire(/*tenant=*/"", *name, 0, kPage).ok());
        table.RemoveOwner(owner);
      }
    });
  }
  for (std::thread& owner : owners) owner.join();
  EXPECT_EQ(cuda_.open_now(), 0);
  EXPECT_GE(cuda_.opened(), 1);
}

}  // namespace
}  // namespace normd
