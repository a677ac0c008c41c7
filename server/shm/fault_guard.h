// Keeps the server alive when a client truncates memory that it shares: an access past the end of a shared object
// raises SIGBUS, which would kill the process. While a FaultGuard lives, a fault within its range replaces the whole
// range by private zero pages and marks the guard as truncated, and the interrupted kernel goes on.
//
// There is one handler and one table for the process, the only mutable global of the server: signal actions belong to
// the process, and a handler gets the faulting address and nothing else, so the table that it searches for the address
// can only be global. The table is fixed and lock-free, because a handler may neither allocate nor wait for a lock that
// the interrupted thread may hold. Faults outside every guarded range, and every other kind of SIGBUS, go to the
// previous action (the default one ends the process), so a bug of ours crashes as it would without the handler.
//
// The handler runs on the thread's alternate signal stack if there is one, because actions of others to which it passes
// a fault on may need that stack; otherwise it runs on the thread's own stack, which a truncated object leaves intact,
// unlike a stack overflow. Sanitizers leave SIGBUS to handlers of the program (allow_user_segv_handler, their default);
// theirs is then the previous action.
#ifndef NORMD_SERVER_SHM_FAULT_GUARD_H_
#define NORMD_SERVER_SHM_FAULT_GUARD_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace normd {

class FaultGuard {
 public:
  static constexpr int kMaxRanges = 1024;

  // Guards the mapping [base, base + size_bytes), with both ends rounded outwards to pages. The first call in the
  // process installs the handler. RESOURCE_EXHAUSTED if kMaxRanges are guarded already, INVALID_ARGUMENT for an empty
  // range or one of 1 TiB or more, INTERNAL if the handler cannot be installed.
  static absl::StatusOr<std::unique_ptr<FaultGuard>> Protect(const void* base, int64_t size_bytes);

  // REQUIRES: nothing accesses the range any more, and the range is still mapped: unmap after this, never before.
  ~FaultGuard();
  FaultGuard(const FaultGuard&) = delete;
  FaultGuard& operator=(const FaultGuard&) = delete;

  // Whether a fault was met. From then on the range is private memory of this process, zero at first. Safe from any
  // thread; a thread sees its own faults and those of threads that it has waited for.
  bool truncated() const;

 private:
  explicit FaultGuard(int slot) : slot_(slot) {}

  const int slot_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SHM_FAULT_GUARD_H_
