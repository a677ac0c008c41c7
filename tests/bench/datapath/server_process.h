// A server in a process of its own: this program again, with --serve=KIND. Nothing of gRPC is inherited, and what the
// kernel counts for the process is the server's alone.
// Ownership: the object owns the process, which is killed with it, and dies with this process, too. Threads: one; the
// thread that starts a server must outlive it.
#ifndef NORMD_TESTS_BENCH_DATAPATH_SERVER_PROCESS_H_
#define NORMD_TESTS_BENCH_DATAPATH_SERVER_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace normd::bench {

// What a program that ServerProcess started is to do.
struct ServeCommand {
  std::string kind, listen;
};
// The command in the arguments "--serve=KIND --listen=ADDRESS"; absent where they are others.
std::optional<ServeCommand> ParseServeCommand(int argc, char** argv);

class ServerProcess {
 public:
  // `transport`: "tcp", or "unix" for a socket in a new folder. `program`: this one, or another build of it. The server
  // listens when this returns; UNAVAILABLE when it ends instead.
  static absl::StatusOr<std::unique_ptr<ServerProcess>> Start(const std::string& kind, const std::string& transport,
                                                              const std::string& program = "/proc/self/exe");
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // What a channel connects to.
  const std::string& address() const { return address_; }
  pid_t pid() const { return pid_; }

  // User and system time that the process has used.
  absl::StatusOr<absl::Duration> CpuTime() const;

 private:
  explicit ServerProcess(std::string folder) : folder_(std::move(folder)) {}
  // Reads the line that the server writes.
  absl::Status ReadAddress(int pipe);

  const std::string folder_;  // of the socket; empty: TCP
  pid_t pid_ = -1;
  std::string address_;
};

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_DATAPATH_SERVER_PROCESS_H_
