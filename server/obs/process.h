// Reads the kernel's numbers about this process from /proc, for metrics and for memory decisions.
// Threads: every function is safe from any thread.
#ifndef NORMD_SERVER_OBS_PROCESS_H_
#define NORMD_SERVER_OBS_PROCESS_H_

#include <cstdint>

namespace normd {

struct ProcessStats {
  int64_t resident_bytes = 0;
  int64_t open_fds = 0;
  int64_t max_fds = 0;
  int64_t threads = 0;
  double cpu_seconds = 0;         // user and system
  double start_time_seconds = 0;  // since the Unix epoch
};

// The resident memory of the process; cheaper than ReadProcessStats. Returns 0 when it cannot be read.
int64_t ReadResidentBytes();
// The same without pages of files and of shared memory, which other processes may share.
int64_t ReadPrivateBytes();

// Reads all of ProcessStats. Values that cannot be read are 0.
ProcessStats ReadProcessStats();

}  // namespace normd

#endif  // NORMD_SERVER_OBS_PROCESS_H_
