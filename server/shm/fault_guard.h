// Keeps the server alive when a client cuts off memory that it shares: an access past the end of a shared object raises
// SIGBUS, which would kill the process. While a FaultGuard lives, a fault within its range replaces the whole range by
// private zero pages, marks the guard as truncated, and the kernel that was running goes on.
//
// One handler and one table for the process, the only mutable global of the server: signal actions belong to the
// process, and a handler gets the faulting address and nothing else, so what it looks the address up in can only be
// global. The table is fixed and lock-free: a handler may neither allocate nor wait for a lock that the interrupted
// thread may hold. Faults outside every guarded range, and every other kind of SIGBUS, go to the action that was there
// before (the default one ends the process): a bug of ours crashes as it would without us.
//
// The handler runs on the thread's alternate signal stack where there is one, because actions of others that it passes
// a fault on to may need it, and on the thread's own stack otherwise: unlike a stack overflow, a cut-off object leaves
// that stack intact. Sanitizers leave SIGBUS to handlers of the program (allow_user_segv_handler, their default), and
// theirs is then the action from before.
#ifndef NORMD_SERVER_SHM_FAULT_GUARD_H_
#define NORMD_SERVER_SHM_FAULT_GUARD_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace normd {

class FaultGuard {
 public:
  static constexpr int kMaxRanges = 1024;

  // Guards the mapping [base, base + size_bytes), of which both ends are rounded outwards to pages; installs the
  // handler at the first call in the process. RESOURCE_EXHAUSTED when kMaxRanges are guarded already, INVALID_ARGUMENT
  // for an empty range or one of 1 TiB or more, INTERNAL when the handler cannot be installed.
  static absl::StatusOr<std::unique_ptr<FaultGuard>> Protect(const void* base, int64_t size_bytes);

  // REQUIRES: nothing accesses the range any more, and it is still mapped: unmap after this, never before.
  ~FaultGuard();
  FaultGuard(const FaultGuard&) = delete;
  FaultGuard& operator=(const FaultGuard&) = delete;

  // Whether a fault was met. From then on the range is private memory of this process, zero at first. Any thread; a
  // thread sees its own faults, and those of threads that it has waited for.
  bool truncated() const;

 private:
  explicit FaultGuard(int slot) : slot_(slot) {}

  const int slot_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SHM_FAULT_GUARD_H_
