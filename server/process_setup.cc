#include "server/process_setup.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>

#include "absl/synchronization/mutex.h"

namespace normd {
namespace {

// By default glibc maps and unmaps each block over 128 KiB, so that a 1 MiB request costs about 760 page faults. With
// blocks kept and reused, +41-99 % requests a second and -36-54 % CPU were measured. 32 MiB is the largest threshold
// that glibc accepts.
constexpr int kMmapThresholdBytes = 32 << 20;
// malloc keeps this much free memory at the top of the heap instead of giving it back.
constexpr int kTrimThresholdBytes = 512 << 20;
// The heap grows in steps of this size, which also keeps the threads' secondary heaps from being unmapped and mapped
// again.
constexpr int kTopPadBytes = 16 << 20;

int64_t MinorFaults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// The signal of RequestStop alone. If RequestStop sent SIGTERM while somebody else stops the process, that SIGTERM
// would be taken for the second signal, which ends the process at once.
int RequestSignal() { return SIGRTMIN; }

sigset_t SetOf(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : signals) sigaddset(&set, number);
  return set;
}

// Waits for a signal of `set` other than SIGHUP, and runs `on_hangup` as WaitForStop says.
int WaitFor(const sigset_t& set, OnHangup on_hangup, absl::Duration pause) {
  const timespec wait = absl::ToTimespec(pause);
  bool done = true;
  while (true) {
    const int number = done ? sigwaitinfo(&set, nullptr) : sigtimedwait(&set, nullptr, &wait);
    if (number < 0 && errno != EAGAIN) continue;  // EINTR
    if (number > 0 && number != SIGHUP) return number;
    done = on_hangup(/*again=*/number < 0);
  }
}

// The page faults of a second allocation of 4 MiB after the first was freed.
int64_t FaultsOfReuse() {
  constexpr size_t kBytes = 4 << 20;
  int64_t faults = 0;
  for (int i = 0; i < 2; ++i) {
    faults = MinorFaults();
    void* block = std::malloc(kBytes);
    if (block == nullptr) return 0;
    std::memset(block, 1, kBytes);
    asm volatile("" : : "g"(block) : "memory");  // keeps the compiler from dropping the memset
    std::free(block);
    faults = MinorFaults() - faults;
  }
  return faults;
}

// Authenticated encryption and forward secrecy only, of TLS 1.2; TLS 1.3 has no other suites.
constexpr char kCipherSuites[] =
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:"
    "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-CHACHA20-POLY1305";

}  // namespace

bool TuneAllocator() {
  // NOLINTBEGIN(concurrency-mt-unsafe): this runs before a second thread exists.
  const bool accepted = mallopt(M_MMAP_THRESHOLD, kMmapThresholdBytes) == 1 &&
                        mallopt(M_TRIM_THRESHOLD, kTrimThresholdBytes) == 1 && mallopt(M_TOP_PAD, kTopPadBytes) == 1;
  // NOLINTEND(concurrency-mt-unsafe)
  return accepted && FaultsOfReuse() < 64;  // of the 1024 pages touched
}

int64_t AllocatedBytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

void TrimMemory() { malloc_trim(0); }

void TuneTransport() {
  setenv("GRPC_EXPERIMENTS", "-tcp_read_chunks", /*overwrite=*/0);  // NOLINT(concurrency-mt-unsafe): one thread so far
  // NOLINTNEXTLINE(concurrency-mt-unsafe): one thread so far
  setenv("GRPC_SSL_CIPHER_SUITES", kCipherSuites, /*overwrite=*/1);
  // gRPC uses Abseil's locks, which in Debian's build look for cycles at each use.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

absl::Status CheckFloatingPoint() {
  volatile double smallest = std::numeric_limits<double>::denorm_min();
  volatile double normal = std::numeric_limits<double>::min();
  const bool reads_subnormals = smallest * 4 > 0;
  const bool makes_subnormals = normal / 4 > 0;
  if (reads_subnormals && makes_subnormals) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "subnormal numbers are flushed to zero in this process (a preloaded library built with -ffast-math?): results "
      "would not be exact");
}

void SetUpSignalsAndFiles() {
  for (const int number : {SIGPIPE, SIGXFSZ, SIGUSR1, SIGUSR2}) signal(number, SIG_IGN);
  const sigset_t set = SetOf({SIGTERM, SIGINT, SIGHUP, RequestSignal()});
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  umask(0077);
}

int WaitForStop(OnHangup on_hangup, absl::Duration pause) {
  const int number = WaitFor(SetOf({SIGTERM, SIGINT, SIGHUP, RequestSignal()}), on_hangup, pause);
  return number == RequestSignal() ? 0 : number;
}

void RequestStop() { kill(getpid(), RequestSignal()); }

int WaitForStopSignal(OnHangup on_hangup) {
  return WaitFor(SetOf({SIGTERM, SIGINT, SIGHUP}), on_hangup, absl::InfiniteDuration());
}

std::optional<int64_t> MemoryLimitBytes(std::string_view proc) {
  std::optional<int64_t> least = CgroupMemoryLimit(proc);
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    const auto bytes = static_cast<int64_t>(limit.rlim_cur);
    least = std::min(least.value_or(bytes), bytes);
  }
  return least;
}

DescriptorLimits RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  DescriptorLimits limits = {.before = limit.rlim_cur, .now = limit.rlim_cur, .most = limit.rlim_max};
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0) limits.now = limit.rlim_cur;
  return limits;
}

}  // namespace normd
