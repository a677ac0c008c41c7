// What main arranges for the whole process before anything runs: allocator, floating point, signals, file modes.
// In the path: main only. Not for libraries: each of these is process-wide.
#ifndef NORMD_SERVER_PROCESS_SETUP_H_
#define NORMD_SERVER_PROCESS_SETUP_H_

#include "absl/status/status.h"

namespace normd {

// Makes malloc keep and reuse the memory of tensors. False when it did not take effect (sanitizers bring their own).
bool TuneAllocator();

// Asks gRPC to read large messages in large pieces: 1 to 3 slices a MiB instead of 17 to 25, so that hardly a row of a
// tensor lies in two. An environment variable is the only way to ask this release; one that the user set is kept.
// REQUIRES: before gRPC starts.
void TuneTransport();

// FAILED_PRECONDITION when this thread flushes subnormal numbers to zero, which a library built with -ffast-math can
// switch on: results would not be what README promises.
absl::Status CheckFloatingPoint();

// Ignores SIGPIPE; blocks SIGTERM and SIGINT in this thread and in all that it starts, for WaitForStopSignal; new files
// are private to the user.
void SetUpSignalsAndFiles();

// Waits for SIGTERM or SIGINT and returns which. REQUIRES: SetUpSignalsAndFiles.
int WaitForStopSignal();

}  // namespace normd

#endif  // NORMD_SERVER_PROCESS_SETUP_H_
