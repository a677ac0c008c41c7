// The admin listener: HTTP /metrics, /healthz, /readyz and a small status page at /. Everything else is 404.
// In the path: beside it; nothing here touches requests. Probes and Prometheus come here.
// Threads: a few of its own, so the callbacks in AdminPages must be safe from any thread; they must outlive the server.
#ifndef NORMD_SERVER_ADMIN_ADMIN_SERVER_H_
#define NORMD_SERVER_ADMIN_ADMIN_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace httplib {
class Server;
}

namespace normd {

enum class ServingState : uint8_t { kStarting, kServing, kDraining };

// "starting", "serving", "draining"
std::string_view Name(ServingState state);

// What the status page shows: facts by name, then requests by method.
struct StatusFacts {
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<std::pair<std::string, uint64_t>> requests;
};

// The page as HTML; everything in it is escaped.
std::string StatusPage(const StatusFacts& facts);

struct AdminPages {
  std::function<std::string()> metrics;  // exposition text
  std::function<ServingState()> state;   // /readyz: 200 only for kServing
  std::function<StatusFacts()> status;
};

class AdminServer {
 public:
  // Binds and serves. Port 0: any free one. UNAVAILABLE when the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(const std::string& host, int port, AdminPages pages);

  // Stops accepting and waits for the requests being answered.
  ~AdminServer();

  int port() const { return port_; }

 private:
  AdminServer(std::unique_ptr<httplib::Server> server, int port);

  const std::unique_ptr<httplib::Server> server_;
  const int port_;
  std::thread thread_;
};

}  // namespace normd

#endif  // NORMD_SERVER_ADMIN_ADMIN_SERVER_H_
