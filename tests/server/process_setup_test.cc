#include "server/process_setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/config.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace normd {
namespace {

TEST(ProcessSetup, FindsFloatingPointAsItMustBe) { EXPECT_TRUE(CheckFloatingPoint().ok()); }

#if defined(__x86_64__)
TEST(ProcessSetup, NoticesFlushToZeroAndDenormalsAreZero) {
  const unsigned saved = _mm_getcsr();
  for (const unsigned bit : {0x8000u, 0x0040u}) {
    _mm_setcsr(saved | bit);
    const absl::Status status = CheckFloatingPoint();
    _mm_setcsr(saved);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << bit;
  }
}
#endif

// The address and thread sanitizers bring an allocator of their own, which mallopt does not reach.
#if !defined(ABSL_HAVE_ADDRESS_SANITIZER) && !defined(ABSL_HAVE_THREAD_SANITIZER)
TEST(ProcessSetup, MakesMallocKeepLargeBlocks) { EXPECT_TRUE(TuneAllocator()); }
#endif

// Signals blocked as normd has them, and as they were afterwards.
class StopTest : public ::testing::Test {
 protected:
  StopTest() {
    pthread_sigmask(SIG_SETMASK, nullptr, &before_);
    SetUpSignalsAndFiles();
  }
  ~StopTest() override { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  const std::function<bool(bool)> count_hangups_ = [this](bool) {
    ++hangups_;
    return true;
  };
  int hangups_ = 0;

 private:
  sigset_t before_;
};

TEST_F(StopTest, ReturnsTheSignalThatCame) {
  raise(SIGTERM);
  EXPECT_EQ(WaitForStop(count_hangups_), SIGTERM);
  raise(SIGINT);
  EXPECT_EQ(WaitForStopSignal(count_hangups_), SIGINT);
  for (const int ignored : {SIGPIPE, SIGXFSZ, SIGUSR1, SIGUSR2}) raise(ignored);  // this process goes on
  EXPECT_EQ(hangups_, 0);
}

TEST_F(StopTest, AHangupIsReportedAndEndsNoWait) {
  raise(SIGHUP);
  std::thread terminator([waiting = pthread_self()] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // after the hang-up was taken
    pthread_kill(waiting, SIGTERM);
  });
  EXPECT_EQ(WaitForStop(count_hangups_), SIGTERM);
  terminator.join();
  EXPECT_EQ(hangups_, 1);
}

TEST_F(StopTest, AHangupThatCouldNotBeDoneRunsAgain) {
  std::vector<bool> again;
  raise(SIGHUP);
  const auto on_hangup = [&again](bool is_again) {
    again.push_back(is_again);
    if (again.size() == 3) raise(SIGTERM);
    return again.size() == 3;
  };
  EXPECT_EQ(WaitForStop(on_hangup, absl::Milliseconds(1)), SIGTERM);
  EXPECT_THAT(again, ::testing::ElementsAre(false, true, true));
}

TEST_F(StopTest, ASignalEndsTheWaitForAHangupThatCannotBeDone) {
  raise(SIGHUP);
  const auto on_hangup = [](bool) {
    raise(SIGTERM);
    return false;
  };
  EXPECT_EQ(WaitForStop(on_hangup, absl::Hours(1)), SIGTERM);
}

// In a process of its own: the request is sent to the process, where threads of other tests do not block it.
TEST_F(StopTest, ARequestIsNoSecondSignal) {
  const auto stop_while_stopping = [this] {
    raise(SIGTERM);
    bool right = WaitForStop(count_hangups_) == SIGTERM;
    RequestStop();  // the store failed just as the process was told to end
    raise(SIGINT);
    right = right && WaitForStopSignal(count_hangups_) == SIGINT;  // only whoever runs the process can ask twice
    right = right && WaitForStop(count_hangups_) == 0;             // and the request is not lost
    _exit(right ? 0 : 1);
  };
  EXPECT_EXIT(stop_while_stopping(), ::testing::ExitedWithCode(0), "");
}

// As `ulimit -f` has it: the write fails, and the process goes on.
TEST_F(StopTest, AWriteBeyondTheLimitOfFileSizesFails) {
  const auto write_too_much = [] {
    const rlimit limit = {.rlim_cur = 1000, .rlim_max = 1000};
    bool right = setrlimit(RLIMIT_FSIZE, &limit) == 0;
    std::FILE* const file = std::tmpfile();
    const std::string text(2000, 'x');
    right = right && write(fileno(file), text.data(), text.size()) == 1000;
    right = right && write(fileno(file), text.data(), text.size()) == -1 && errno == EFBIG;
    _exit(right ? 0 : 1);
  };
  EXPECT_EXIT(write_too_much(), ::testing::ExitedWithCode(0), "");
}

TEST(ProcessSetup, TheLimitOfTheAddressSpaceCounts) {
  const auto ask = [] {
    const rlimit limit = {.rlim_cur = 123 << 20, .rlim_max = RLIM_INFINITY};
    const bool set = setrlimit(RLIMIT_AS, &limit) == 0;
    _exit(set && MemoryLimitBytes("/nonexistent") == int64_t{123} << 20 ? 0 : 1);
  };
#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER)
  GTEST_SKIP() << "the sanitizers need the address space";
#endif
  EXPECT_EXIT(ask(), ::testing::ExitedWithCode(0), "");
}

TEST(ProcessSetup, RaisesTheLimitOfDescriptorsToTheHardOne) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 100;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const DescriptorLimits limits = RaiseDescriptorLimit();
  rlimit after{};
  getrlimit(RLIMIT_NOFILE, &after);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(limits.before, 100u);
  EXPECT_EQ(limits.now, before.rlim_max);
  EXPECT_EQ(limits.most, before.rlim_max);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
}

}  // namespace
}  // namespace normd
