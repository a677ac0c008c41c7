#include "server/shm/fault_guard.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "server/base/error_reasons.h"
#include "server/base/errors.h"

namespace normd {
namespace {

// A range is one word, so that the handler never sees half of a range: the first unit and the number of units. Units
// are 4 KiB whatever the page size; 36 bits hold every address that mmap gives without being asked for a higher one.
constexpr int kUnitShift = 12;
constexpr int kCountBits = 28;
constexpr uint64_t kMaxCount = (uint64_t{1} << kCountBits) - 1;
constexpr uint64_t kMaxFirst = (uint64_t{1} << (64 - kCountBits)) - 1;

struct Slot {
  std::atomic<uint64_t> range{0};  // 0: free
  std::atomic<bool> truncated{false};
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

// See the header for why these are global. `previous` is constant from before the handler is in place.
constinit Slot table[FaultGuard::kMaxRanges];
constinit struct sigaction previous {};

uint64_t BeginOf(uint64_t range) { return (range >> kCountBits) << kUnitShift; }
uint64_t SizeOf(uint64_t range) { return (range & kMaxCount) << kUnitShift; }

// Replaces the whole range at once, so that there is one fault however many pages are gone, and one mapping however
// often the client truncates again. A plain system call, because sanitizers wrap mmap in code that a handler may not
// run.
bool ReplaceByZeros(uint64_t range) {
  const long result = syscall(SYS_mmap, BeginOf(range), SizeOf(range), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0L);
  return result == static_cast<long>(BeginOf(range));
}

// Whether `address` was in a guarded range, which consists of zeros now. The range of a thread that faults stays in the
// table while the handler runs (see ~FaultGuard); other slots may change meanwhile.
bool Absorb(uint64_t address) {
  for (Slot& slot : table) {
    const uint64_t range = slot.range.load(std::memory_order_acquire);
    if (address - BeginOf(range) >= SizeOf(range)) continue;  // wraps around below the begin
    slot.truncated.store(true, std::memory_order_release);
    return ReplaceByZeros(range);
  }
  return false;
}

void PassOn(int signal, siginfo_t* info, void* context) {
  const bool sent = info->si_code <= 0;  // sent by kill() and the like, not raised by an access
  if (previous.sa_handler == SIG_IGN && sent) return;
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    if ((previous.sa_flags & SA_SIGINFO) != 0) return previous.sa_sigaction(signal, info, context);
    return previous.sa_handler(signal);
  }
  // The access is repeated on return and ends the process as if there were no handler; a sent signal is sent again.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, nullptr);
  if (sent) raise(signal);
}

void OnBusError(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  // BUS_ADRERR: there is no memory behind the address. Clients cause neither misaligned accesses nor broken memory.
  const bool absorbed = info->si_code == BUS_ADRERR && Absorb(reinterpret_cast<uintptr_t>(info->si_addr));
  if (!absorbed) PassOn(signal, info, context);
  errno = saved_errno;
}

// Returns 0 or errno. Reads `previous` first, because the handler may run as soon as it is in place.
int InstallHandler() {
  if (sigaction(SIGBUS, nullptr, &previous) != 0) return errno;
  struct sigaction action {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigemptyset(&action.sa_mask);
  return sigaction(SIGBUS, &action, nullptr) == 0 ? 0 : errno;
}

absl::StatusOr<uint64_t> PackRange(const void* base, int64_t size_bytes) {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t begin = reinterpret_cast<uintptr_t>(base) & ~(page - 1);
  constexpr uint64_t kMaxBytes = kMaxCount << kUnitShift;
  if (size_bytes < 1 || static_cast<uint64_t>(size_bytes) > kMaxBytes - 2 * page) {
    return OutOfRangeError("size_bytes", absl::StrCat(size_bytes), "1 byte to 1 TiB", ServerReason("REGION_SIZE"));
  }
  const uint64_t end = (reinterpret_cast<uintptr_t>(base) + size_bytes + page - 1) & ~(page - 1);
  if (begin == 0 || (begin >> kUnitShift) > kMaxFirst) {
    return absl::InternalError("a mapping at an address that cannot be guarded");
  }
  return (begin >> kUnitShift) << kCountBits | (end - begin) >> kUnitShift;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FaultGuard>> FaultGuard::Protect(const void* base, int64_t size_bytes) {
  static const int install_error = InstallHandler();
  if (install_error != 0) {
    return absl::InternalError(absl::StrCat("cannot handle SIGBUS: ", std::generic_category().message(install_error)));
  }
  const absl::StatusOr<uint64_t> range = PackRange(base, size_bytes);
  if (!range.ok()) return range.status();
  for (int slot = 0; slot < kMaxRanges; ++slot) {
    uint64_t free = 0;
    if (table[slot].range.compare_exchange_strong(free, *range, std::memory_order_acq_rel)) {
      return std::unique_ptr<FaultGuard>(new FaultGuard(slot));
    }
  }
  return LimitExceededError("guarded regions", kMaxRanges + 1, kMaxRanges);
}

FaultGuard::~FaultGuard() {
  table[slot_].truncated.store(false, std::memory_order_relaxed);
  table[slot_].range.store(0, std::memory_order_release);
}

bool FaultGuard::truncated() const { return table[slot_].truncated.load(std::memory_order_acquire); }

}  // namespace normd
