// What main arranges for the whole process before anything runs: allocator, floating point, signals, file modes.
// In the path: main only. Not for libraries: each of these is process-wide.
#ifndef NORMD_SERVER_PROCESS_SETUP_H_
#define NORMD_SERVER_PROCESS_SETUP_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace normd {

// Makes malloc keep and reuse the memory of tensors. False when it did not take effect (sanitizers bring their own).
bool TuneAllocator();

// What is in blocks of malloc that were not freed; 0 with an allocator that does not count for malloc (sanitizers).
int64_t AllocatedBytes();

// Gives the system back what malloc keeps, of every thread's heap. Walks them with their locks held: for a quiet
// server.
void TrimMemory();

// Asks gRPC to read large messages in large pieces: 1 to 3 slices a MiB instead of 17 to 25, so that hardly a row of a
// tensor lies in two. An environment variable is the only way to ask this release; one that the user set is kept.
// And turns off a search of its locks for deadlocks, which costs a small call 6 % of its CPU.
// REQUIRES: before gRPC starts.
void TuneTransport();

// FAILED_PRECONDITION when this thread flushes subnormal numbers to zero, which a library built with -ffast-math can
// switch on: results would not be what README promises.
absl::Status CheckFloatingPoint();

// Ignores SIGPIPE; blocks SIGTERM, SIGINT and SIGHUP in this thread and in all that it starts, for the waits below; new
// files are private to the user.
void SetUpSignalsAndFiles();

// Waits until the process is asked to stop: SIGTERM or SIGINT, or 0 after RequestStop. SIGHUP ends nothing: each one
// runs `on_hangup`, and the wait goes on. REQUIRES: SetUpSignalsAndFiles; so do the two below.
int WaitForStop(absl::FunctionRef<void()> on_hangup);

// Ends WaitForStop from any thread, now or when it is called. It is not a signal of whoever runs the process, so
// WaitForStopSignal does not see it, however the two meet.
void RequestStop();

// Waits for SIGTERM or SIGINT, sent after the one that ended WaitForStop. Runs `on_hangup` as WaitForStop does.
int WaitForStopSignal(absl::FunctionRef<void()> on_hangup);

// The least that RLIMIT_AS and this container (cgroup v2) let the process have; nothing where neither limits it.
std::optional<int64_t> MemoryLimitBytes(const std::string& cgroup_file = "/sys/fs/cgroup/memory.max");

// The limits of open descriptors.
struct DescriptorLimits {
  uint64_t before = 0, now = 0, most = 0;  // the soft limit as it was and as it is; the hard one
};

// Raises the soft limit of descriptors to the hard one: a connection takes one, and the usual soft limit of 1024 is for
// programs that use select().
DescriptorLimits RaiseDescriptorLimit();

}  // namespace normd

#endif  // NORMD_SERVER_PROCESS_SETUP_H_
