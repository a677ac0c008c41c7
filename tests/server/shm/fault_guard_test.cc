#include "server/shm/fault_guard.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/shm/fixtures.h"

namespace normd {
namespace {

// An object that can be cut off, mapped and filled with sevens.
class Shared {
 public:
  explicit Shared(int64_t size_bytes) : size_bytes_(size_bytes), memory_(MakeMemory(size_bytes)) {
    void* const data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_.get(), 0);
    EXPECT_NE(data, MAP_FAILED);
    data_ = static_cast<volatile char*>(data);
    for (int64_t i = 0; i < size_bytes; ++i) data_[i] = 7;
  }
  ~Shared() { munmap(const_cast<char*>(data_), size_bytes_); }

  volatile char* data() const { return data_; }
  const void* base() const { return const_cast<const char*>(data_); }
  int64_t size_bytes() const { return size_bytes_; }
  void CutTo(int64_t bytes) const { ASSERT_EQ(ftruncate(memory_.get(), bytes), 0); }

 private:
  const int64_t size_bytes_;
  const UniqueFd memory_;
  volatile char* data_ = nullptr;
};

std::unique_ptr<FaultGuard> Guard(const Shared& shared) {
  absl::StatusOr<std::unique_ptr<FaultGuard>> guard = FaultGuard::Protect(shared.base(), shared.size_bytes());
  EXPECT_TRUE(guard.ok()) << guard.status();
  return *std::move(guard);
}

int64_t Sum(const Shared& shared) {
  int64_t sum = 0;
  for (int64_t i = 0; i < shared.size_bytes(); ++i) sum += shared.data()[i];
  return sum;
}

TEST(FaultGuard, LetsReadsGoOnAsZerosWhenTheObjectIsCutOff) {
  const Shared shared(4 * kPage);
  const std::unique_ptr<FaultGuard> guard = Guard(shared);
  EXPECT_EQ(Sum(shared), 7 * 4 * kPage);
  EXPECT_FALSE(guard->truncated());
  shared.CutTo(kPage);
  EXPECT_EQ(Sum(shared), 7 * kPage);  // the page that is left, then zeros
  EXPECT_TRUE(guard->truncated());
}

TEST(FaultGuard, LetsWritesGoOnWhenTheObjectIsCutOff) {
  const Shared shared(2 * kPage);
  const std::unique_ptr<FaultGuard> guard = Guard(shared);
  shared.CutTo(0);
  for (int64_t i = 0; i < shared.size_bytes(); ++i) shared.data()[i] = 3;
  EXPECT_EQ(Sum(shared), 3 * 2 * kPage);
  EXPECT_TRUE(guard->truncated());
}

TEST(FaultGuard, MarksOnlyTheRangeThatFaulted) {
  const Shared cut(3 * kPage), whole(3 * kPage);
  const std::unique_ptr<FaultGuard> guard_of_whole = Guard(whole);
  const std::unique_ptr<FaultGuard> guard_of_cut = Guard(cut);
  cut.CutTo(0);
  EXPECT_EQ(Sum(cut), 0);
  EXPECT_TRUE(guard_of_cut->truncated());
  EXPECT_FALSE(guard_of_whole->truncated());
  EXPECT_EQ(Sum(whole), 7 * 3 * kPage);
}

TEST(FaultGuard, CoversTheWholeLastPageOfAnOddSize) {
  const Shared shared(kPage + 1);
  const std::unique_ptr<FaultGuard> guard = Guard(shared);
  shared.CutTo(0);
  EXPECT_EQ(shared.data()[2 * kPage - 1], 0);
  EXPECT_TRUE(guard->truncated());
}

TEST(FaultGuard, ForgetsTheDamageOfARangeThatIsGone) {
  for (int round = 0; round < 3; ++round) {
    const Shared shared(kPage);
    const std::unique_ptr<FaultGuard> guard = Guard(shared);
    EXPECT_FALSE(guard->truncated());
    shared.CutTo(0);
    EXPECT_EQ(shared.data()[0], 0);
    EXPECT_TRUE(guard->truncated());
  }
}

TEST(FaultGuard, ServesManyThreadsThatFaultAtOnce) {
  const Shared shared(64 * kPage);
  const std::unique_ptr<FaultGuard> guard = Guard(shared);
  std::atomic<int> started = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      ++started;
      while (!guard->truncated()) Sum(shared);
    });
  }
  while (started < 4) std::this_thread::yield();
  shared.CutTo(0);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(Sum(shared), 0);
}

TEST(FaultGuard, WorksOnAThreadWithAnAlternateStack) {
  const Shared shared(kPage);
  const std::unique_ptr<FaultGuard> guard = Guard(shared);
  shared.CutTo(0);
  std::thread([&] {
    std::vector<char> stack(64 << 10);
    stack_t alternate{}, before{};
    alternate.ss_sp = stack.data();
    alternate.ss_size = stack.size();
    ASSERT_EQ(sigaltstack(&alternate, &before), 0);
    EXPECT_EQ(shared.data()[0], 0);
    ASSERT_EQ(sigaltstack(&before, nullptr), 0);
  }).join();
  EXPECT_TRUE(guard->truncated());
}

TEST(FaultGuard, RefusesRangesOfAnInvalidSize) {
  const Shared shared(kPage);
  for (const int64_t size_bytes : {int64_t{0}, int64_t{-1}, INT64_MIN, int64_t{1} << 40, INT64_MAX}) {
    EXPECT_EQ(FaultGuard::Protect(shared.base(), size_bytes).status().code(), absl::StatusCode::kInvalidArgument)
        << size_bytes;
  }
  EXPECT_FALSE(FaultGuard::Protect(nullptr, 1).ok());
}

TEST(FaultGuard, RefusesMoreRangesThanItsTableHoldsAndTakesThemAgainLater) {
  const Shared shared(kPage);
  std::vector<std::unique_ptr<FaultGuard>> guards;
  absl::StatusOr<std::unique_ptr<FaultGuard>> next = FaultGuard::Protect(shared.base(), kPage);
  for (; next.ok() && guards.size() <= FaultGuard::kMaxRanges; next = FaultGuard::Protect(shared.base(), kPage)) {
    guards.push_back(*std::move(next));
  }
  EXPECT_EQ(guards.size(), FaultGuard::kMaxRanges);
  EXPECT_EQ(next.status().code(), absl::StatusCode::kResourceExhausted);
  guards.pop_back();
  EXPECT_TRUE(FaultGuard::Protect(shared.base(), kPage).ok());
}

// What happens in processes of their own. Under a sanitizer the action from before is the sanitizer's, which reports
// and exits, so that how the process ends is not looked at, only that it does.
class FaultGuardDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

void TouchWhatNobodyGuards() {
  const Shared guarded(kPage), other(kPage);
  const std::unique_ptr<FaultGuard> guard = Guard(guarded);
  guarded.CutTo(0);
  if (guarded.data()[0] != 0) _exit(1);
  other.CutTo(0);
  other.data()[0] = 1;
}

void TouchWhatIsNoLongerGuarded() {
  const Shared shared(kPage);
  Guard(shared).reset();
  shared.CutTo(0);
  shared.data()[0] = 1;
}

void BeSentTheSignal() {
  const Shared shared(kPage);
  const std::unique_ptr<FaultGuard> guard = Guard(shared);
  kill(getpid(), SIGBUS);
  shared.CutTo(0);
  _exit(shared.data()[0] == 0 ? 0 : 1);
}

TEST_F(FaultGuardDeathTest, StillDiesOfAFaultThatIsNotGuarded) { EXPECT_DEATH(TouchWhatNobodyGuards(), ""); }

TEST_F(FaultGuardDeathTest, StillDiesOfAFaultWhoseGuardIsGone) { EXPECT_DEATH(TouchWhatIsNoLongerGuarded(), ""); }

TEST_F(FaultGuardDeathTest, StillDiesOfASignalThatSomebodySent) { EXPECT_DEATH(BeSentTheSignal(), ""); }

TEST_F(FaultGuardDeathTest, PassesFaultsToTheHandlerFromBefore) {
  EXPECT_EXIT((signal(SIGBUS, [](int) { _exit(42); }), TouchWhatNobodyGuards()), ::testing::ExitedWithCode(42), "");
}

TEST_F(FaultGuardDeathTest, KeepsIgnoringSentSignalsWhereTheyWereIgnored) {
  EXPECT_EXIT((signal(SIGBUS, SIG_IGN), BeSentTheSignal()), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace normd
