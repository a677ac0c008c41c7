// The admin listener, for probes and Prometheus: HTTP /metrics, /healthz, /readyz and a small status page at /. Every
// other path is 404.
// In the path: beside it; nothing here touches requests.
// Threads: the callbacks in AdminPages run on two threads of HttpServer, so they must be safe from any thread, and
// what they use must outlive the server. `state` answers probes and must return at once; the others may take longer.
#ifndef NORMD_SERVER_ADMIN_ADMIN_SERVER_H_
#define NORMD_SERVER_ADMIN_ADMIN_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/admin/http_server.h"

namespace normd {

enum class ServingState : uint8_t { kStarting, kServing, kUnreachable, kDraining };

// "starting", "serving", "unreachable" or "draining".
std::string_view Name(ServingState state);

// The contents of the status page: facts by name, then the number of requests by method.
struct StatusFacts {
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<std::pair<std::string, uint64_t>> requests;
};

// The status page as HTML, with all texts escaped.
std::string StatusPage(const StatusFacts& facts);

struct AdminPages {
  std::function<std::string()> metrics;  // exposition text
  std::function<ServingState()> state;   // /readyz: 200 only for kServing
  std::function<StatusFacts()> status;
};

class AdminServer {
 public:
  // Binds the address and serves until the AdminServer is destroyed. Port 0 means any free port. Returns UNAVAILABLE
  // when the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(const std::string& host, int port, AdminPages pages);

  int port() const { return server_->port(); }

 private:
  explicit AdminServer(std::unique_ptr<HttpServer> server) : server_(std::move(server)) {}

  const std::unique_ptr<HttpServer> server_;
};

}  // namespace normd

#endif  // NORMD_SERVER_ADMIN_ADMIN_SERVER_H_
