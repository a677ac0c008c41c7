// A whole normd in the test's process, with its listeners, store in memory, pages and shared memory, and a caller that
// sends it bytes that it made before. The caller is the test's thread: what it spends is not the server's.
// Thread-compatible.
#ifndef NORMD_TESTS_AMPLIFICATION_NORMD_FIXTURE_H_
#define NORMD_TESTS_AMPLIFICATION_NORMD_FIXTURE_H_

#include <google/protobuf/message_lite.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/base/clock.h"
#include "server/base/unique_fd.h"
#include "server/obs/log.h"
#include "server/server.h"
#include "tests/amplification/bounds.h"

namespace normd {

class WholeNormd {
 public:
  // `options` come after those that every test has: "--max_regions=8".
  explicit WholeNormd(const std::vector<std::string>& options = {});
  ~WholeNormd();

  const std::string& unix_path() const { return unix_path_; }
  int admin_port() const { return admin_port_; }
  int tcp_port() const { return tcp_port_; }

  // Sends calls of `path`, one after the other on one connection, each with the messages of `body`, which are in gRPC's
  // frames. Returns what they cost, once all are answered.
  Cost Call(std::string_view path, std::string_view body, int calls);
  // The bytes of those calls.
  static std::string WireOf(std::string_view path, std::string_view body, int calls);
  // The same cost, measured like a row: `per_call` has the units of one call beside its bytes, frames and headers.
  void ExpectWithinBound(const std::string& name, std::string_view path, std::string_view body, int calls,
                         Units per_call);

 private:
  SystemClock clock_;
  Log log_;
  std::string folder_;
  std::string unix_path_;
  int admin_port_ = 0;
  int tcp_port_ = 0;
  std::unique_ptr<Server> server_;
};

// A unary call.
inline constexpr Units kRequest = {.requests = 1};

// The message in gRPC's frame.
std::string Packed(const google::protobuf::MessageLite& message);

// A connection to a Unix socket, or to a port of 127.0.0.1, that gives up waiting after 20 s.
UniqueFd ConnectToPath(const std::string& path, int type);
UniqueFd ConnectToPort(int port);
bool SendWhole(const UniqueFd& fd, std::string_view bytes);

}  // namespace normd

#endif  // NORMD_TESTS_AMPLIFICATION_NORMD_FIXTURE_H_
