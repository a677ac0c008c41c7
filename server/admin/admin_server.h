// The admin listener: HTTP /metrics, /healthz, /readyz and a small status page at /. Everything else is 404.
// In the path: beside it; nothing here touches requests. Probes and Prometheus come here.
// Threads: two of HttpServer's, so the callbacks in AdminPages must be safe from any thread; they must outlive the
// server. `state` answers probes and returns at once; the other pages may take their time.
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
  // Binds and serves until it is destroyed. Port 0: any free one. UNAVAILABLE when the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(const std::string& host, int port, AdminPages pages);

  int port() const { return server_->port(); }

 private:
  explicit AdminServer(std::unique_ptr<HttpServer> server) : server_(std::move(server)) {}

  const std::unique_ptr<HttpServer> server_;
};

}  // namespace normd

#endif  // NORMD_SERVER_ADMIN_ADMIN_SERVER_H_
