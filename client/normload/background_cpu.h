// Measures the share of the machine's CPU that other processes used: all time that was not idle, less this process and
// the server it loads. A measurement beside busy neighbours says little. Reads /proc; a value that cannot be read is
// unknown, never 0. Interrupts are left out, because they belong to no process, and under a loopback load most of them
// are caused by the load itself.
#ifndef NORMD_CLIENT_NORMLOAD_BACKGROUND_CPU_H_
#define NORMD_CLIENT_NORMLOAD_BACKGROUND_CPU_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace normd::client {

// A run with more background CPU than this is called noisy.
inline constexpr double kNoisyShare = 0.10;

// Clock ticks since boot, summed over all CPUs.
struct CpuTicks {
  int64_t busy = 0;   // of processes, and time stolen by other virtual machines
  int64_t total = 0;  // idle time included
  int64_t ours = 0;   // of this process and the server
};

// Parses /proc/stat. `ours` stays 0.
std::optional<CpuTicks> ParseCpuTicks(absl::string_view proc_stat);
// User plus system time from /proc/PID/stat. The process's name may contain spaces and parentheses.
std::optional<int64_t> ParseProcessTicks(absl::string_view proc_pid_stat);
// The inode of the socket that listens on `port`, from /proc/net/tcp or tcp6.
std::optional<int64_t> ParseTcpListener(absl::string_view proc_net_tcp, int port);
// The inode of the socket that listens on `path`, from /proc/net/unix.
std::optional<int64_t> ParseUnixListener(absl::string_view proc_net_unix, absl::string_view path);
// The share of the machine's CPU that other processes used between two moments, in [0, 1]; nullopt if no time passed.
std::optional<double> ForeignShare(const CpuTicks& before, const CpuTicks& after);

// The process that listens on `target` ("unix:/path", "127.0.0.1:8001"); nullopt if it is not on this machine or cannot
// be seen.
std::optional<int> FindServerPid(const std::string& target);

// Measures background CPU lap by lap. Not thread-safe.
class BackgroundCpu {
 public:
  // Without `server_pid`, all processes but this one are background.
  explicit BackgroundCpu(std::optional<int> server_pid) : server_pid_(server_pid), last_(Now()) {}

  // The share since the previous call, or since construction.
  std::optional<double> Lap();

 private:
  std::optional<CpuTicks> Now() const;

  std::optional<int> server_pid_;
  std::optional<CpuTicks> last_;
};

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMLOAD_BACKGROUND_CPU_H_
