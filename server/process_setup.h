// Sets up the whole process before anything runs: allocator, transport, floating point, signals, file modes, limits.
// In the path: called by main only (server.cc uses the memory functions). Not for libraries, because every effect is
// process-wide.
#ifndef NORMD_SERVER_PROCESS_SETUP_H_
#define NORMD_SERVER_PROCESS_SETUP_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/cgroup.h"

namespace normd {

// Makes malloc keep and reuse the memory of tensors. Returns false when the settings had no effect, as with the
// sanitizers, which bring their own allocator.
bool TuneAllocator();

// The bytes of malloc's blocks that are not freed; 0 with an allocator that malloc does not count, as the sanitizers'.
int64_t AllocatedBytes();

// Returns the free memory of every thread's heap to the system. Walks the heaps with their locks held, so call this
// only while the server is quiet.
void TrimMemory();

// Asks gRPC to read large messages in large pieces: 1 to 3 slices per MiB instead of 17 to 25, so that hardly any row
// of a tensor is split over two slices. This release of gRPC takes the setting only from an environment variable; a
// value that the user has set is kept. Sets TLS's cipher suites, too, even if the user has set others: a list that gRPC
// does not take would only show when the first client comes. Also turns off the deadlock detection of gRPC's locks,
// which costs a small call 6 % of its CPU. REQUIRES: gRPC has not started.
void TuneTransport();

// Returns FAILED_PRECONDITION when this thread flushes subnormal numbers to zero, which a library built with
// -ffast-math can switch on: results would not be those that kernels/README.md promises.
absl::Status CheckFloatingPoint();

// Ignores SIGPIPE; SIGXFSZ, so that a write beyond a file-size limit (ulimit -f) fails as one to a full disk does; and
// SIGUSR1 and SIGUSR2, which other servers reopen logs at and which would end this one. Blocks SIGTERM, SIGINT and
// SIGHUP in this thread and in the threads that it starts, so that the functions below can wait for them; makes new
// files private to the user.
void SetUpSignalsAndFiles();

// Waits until the process is asked to stop. Returns SIGTERM or SIGINT, or 0 after RequestStop. SIGHUP does not end the
// wait; each one runs `on_hangup`, and while this returns false, as it does when not all could be done, it runs again
// every `pause`, with `again` true. REQUIRES: SetUpSignalsAndFiles was called, as do the two functions below.
using OnHangup = absl::FunctionRef<bool(bool again)>;
int WaitForStop(OnHangup on_hangup, absl::Duration pause = absl::Seconds(1));

// Ends the current or the next WaitForStop, from any thread. Uses a signal of its own, so that WaitForStopSignal never
// confuses it with a signal from outside, even when both arrive at the same time.
void RequestStop();

// Waits for a SIGTERM or SIGINT that comes after the one that ended WaitForStop, and returns it. Runs `on_hangup` as
// WaitForStop does.
int WaitForStopSignal(OnHangup on_hangup);

// The smallest of RLIMIT_AS and the memory limits of this process's control groups; nullopt where none is set.
std::optional<int64_t> MemoryLimitBytes(std::string_view proc = kOwnProc);

// The limits of open file descriptors.
struct DescriptorLimits {
  uint64_t before = 0, now = 0, most = 0;  // the soft limit before and now; the hard limit
};

// Raises the soft limit of descriptors to the hard limit, because each connection takes a descriptor, and the usual
// soft limit of 1024 is meant for programs that use select().
DescriptorLimits RaiseDescriptorLimit();

}  // namespace normd

#endif  // NORMD_SERVER_PROCESS_SETUP_H_
