#include "server/process_setup.h"

#include <gtest/gtest.h>
#include <signal.h>

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

TEST(ProcessSetup, ReturnsTheStopSignalThatCame) {
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  SetUpSignalsAndFiles();
  raise(SIGTERM);
  EXPECT_EQ(WaitForStopSignal(), SIGTERM);
  raise(SIGINT);
  EXPECT_EQ(WaitForStopSignal(), SIGINT);
  raise(SIGPIPE);  // ignored: this process goes on
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace
}  // namespace normd
