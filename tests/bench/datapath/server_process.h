// A server in a process of its own: this program again, with --serve=KIND. Nothing of gRPC is inherited, and what the
// kernel counts for the process is the server's alone.
// Ownership: the object owns the process, which is killed with it, and dies with this process, too. Threads: one; the
// thread that starts a server must outlive it.
#ifndef NORMD_TESTS_BENCH_DATAPATH_SERVER_PROCESS_H_
#define NORMD_TESTS_BENCH_DATAPATH_SERVER_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace normd::bench {

// What a process has used since it began.
struct Usage {
  absl::Duration cpu;  // user and system
  int64_t page_faults = 0;
};

class ServerProcess {
 public:
  // `listen`: "127.0.0.1:0" or "unix:/path". `program`: this one, or another build of it. Listens when it returns;
  // UNAVAILABLE when it does not within 20 seconds.
  static absl::StatusOr<std::unique_ptr<ServerProcess>> Start(const std::string& kind, const std::string& listen,
                                                              const std::string& program = "/proc/self/exe");
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  const std::string& kind() const { return kind_; }
  // What a channel connects to.
  const std::string& address() const { return address_; }
  pid_t pid() const { return pid_; }

  // Errors, when the process is no more, say how it ended.
  absl::StatusOr<Usage> ReadUsage() const;
  // The most memory that was ever resident.
  absl::StatusOr<int64_t> PeakResidentBytes() const;

 private:
  ServerProcess(std::string kind, pid_t pid) : kind_(std::move(kind)), pid_(pid) {}
  absl::Status CheckAlive() const;
  // Reads the line that the server writes.
  absl::Status WaitForAddress(int pipe);

  const std::string kind_;
  const pid_t pid_;
  std::string address_;
};

// Where a server listens: "127.0.0.1:0" for "tcp", a socket in a new folder for "unix". The folder goes with the
// object.
class ListenPlace {
 public:
  static absl::StatusOr<std::unique_ptr<ListenPlace>> Make(const std::string& transport);
  ~ListenPlace();
  ListenPlace(const ListenPlace&) = delete;
  ListenPlace& operator=(const ListenPlace&) = delete;

  // `name`: what the socket is called.
  std::string Address(const std::string& name) const;

 private:
  explicit ListenPlace(std::string folder) : folder_(std::move(folder)) {}
  const std::string folder_;  // empty: TCP
};

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_DATAPATH_SERVER_PROCESS_H_
