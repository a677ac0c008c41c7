// Takes shared memory in by file descriptor: listens on a Unix socket beside the gRPC one (which cannot carry
// descriptors) and speaks proto/wire/shm_registration.h. Every connection owns the regions that it registers; they are
// removed when it closes, so a client that dies leaves nothing behind.
// In the path: clients register here before they send requests; server/wiring/shared_memory.cc starts and stops the
// registrar. Threads: a loop of its own serves all connections and never waits for a client. Start and Stop have one
// caller.
#ifndef NORMD_SERVER_SHM_REGISTRAR_H_
#define NORMD_SERVER_SHM_REGISTRAR_H_

#include <sys/types.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/shm/region_table.h"

namespace normd {

// The path at which clients of the gRPC socket at `grpc_path` look for the registrar, and the longest such `grpc_path`.
std::string RegistrarPath(std::string_view grpc_path);
inline constexpr size_t kMaxGrpcSocketPath = 103;

// Policy and observation of registrations. All run on the registrar's thread.
struct RegistrarHooks {
  // The tenant of a user, which owns the user's regions. Null: the default tenant.
  std::function<std::string(uid_t uid)> tenant_of;
  // Whether the user may register; an error is the answer to the request. Null: every user that may connect may
  // register.
  std::function<absl::Status(uid_t uid)> may_register;
  // Runs after each request to register with its outcome: OK, or the error that was the answer. May be null.
  std::function<void(uid_t uid, const absl::Status& status)> on_registration;
};

struct RegistrarOptions {
  std::string socket_path;    // RegistrarPath of the gRPC socket
  int max_connections = 256;  // a further connection replaces the oldest one without a region, if there is one
  std::vector<uid_t> allowed_uids = {geteuid(), 0};  // users that may connect
  RegistrarHooks hooks = {};
};

class Registrar {
 public:
  // Listens; the socket's mode is 0600 before anybody can connect. `table` must outlive the Registrar. INVALID_ARGUMENT
  // if the path is too long, UNAVAILABLE, naming the path for operators, if the socket cannot be made.
  // REQUIRES: the folder is safe and no dead server's socket is in the way (PrepareUnixSocket of
  // server/options/listen.h).
  static absl::StatusOr<std::unique_ptr<Registrar>> Start(const RegistrarOptions& options, RegionTable* table);

  // Calls Stop.
  ~Registrar();
  Registrar(const Registrar&) = delete;
  Registrar& operator=(const Registrar&) = delete;

  // Closes all connections, removes their regions (those in use end with their requests) and the socket's file, and
  // joins the thread. Idempotent.
  void Stop();

 private:
  class Host;
  class Connection;

  explicit Registrar(std::unique_ptr<Host> host);

  const std::unique_ptr<Host> host_;  // of the loop's thread
};

}  // namespace normd

#endif  // NORMD_SERVER_SHM_REGISTRAR_H_
