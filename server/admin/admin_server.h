// The admin listener, for probes, Prometheus and people: HTTP /metrics, /healthz, /readyz, the status page at /, and
// the same as text at /statusz. Every other path is 404. In the path: beside it; nothing here touches requests.
// Threads: the callbacks in AdminPages run on two threads of HttpServer, so they must be safe from any thread, and
// everything that they use must outlive the server. `state` answers probes and must return at once; the others may take
// longer.
#ifndef NORMD_SERVER_ADMIN_ADMIN_SERVER_H_
#define NORMD_SERVER_ADMIN_ADMIN_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/admin/http_server.h"
#include "server/admin/status_report.h"

namespace normd {

enum class ServingState : uint8_t { kStarting, kServing, kUnreachable, kDraining };

// "starting", "serving", "unreachable" or "draining".
std::string_view Name(ServingState state);

struct AdminPages {
  std::function<std::string()> metrics;  // exposition text, for Prometheus
  // The same metrics for the status page; figures that begin anew at each scrape go on.
  std::function<MetricReading()> peek;
  std::function<ServingState()> state;  // /readyz: 200 only for kServing
  std::function<StatusFacts()> status;
};

class AdminServer {
 public:
  // Binds the address and serves until the AdminServer is destroyed. Port 0 means any free port. `names` are those of
  // --admin_hosts. Returns UNAVAILABLE when the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(const std::string& host, int port, AdminPages pages,
                                                            std::vector<std::string> names = {});

  int port() const { return server_->port(); }

 private:
  explicit AdminServer(std::unique_ptr<HttpServer> server) : server_(std::move(server)) {}

  const std::unique_ptr<HttpServer> server_;
};

}  // namespace normd

#endif  // NORMD_SERVER_ADMIN_ADMIN_SERVER_H_
