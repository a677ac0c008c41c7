// grpc.health.v1.Health on the same queues as everything else: the one that gRPC ships answers from the callback API's
// sleeping threads. Knows "", "normd.v1.Normalizer" and "normd.v1.Sessions". Exempt from admission.
// Threads: safe from any thread; no lock is held while a watcher is written to.
#ifndef NORMD_SERVER_RPC_SERVICES_HEALTH_SERVICE_H_
#define NORMD_SERVER_RPC_SERVICES_HEALTH_SERVICE_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "grpc/health/v1/health.pb.h"
#include "server/base/mutex.h"
#include "server/rpc/transport/admission.h"
#include "server/rpc/transport/route.h"

namespace normd::rpc {

class HealthService {
 public:
  // Check and Watch; the service must outlive their streams.
  std::vector<Route> Routes();

  // Tells every watcher. Before the first call the answer is NOT_SERVING.
  void SetServing(bool serving);

  // Ends every watch, present and future, with UNAVAILABLE: a watch never ends by itself and would hold up a shutdown.
  void EndWatches();

 private:
  using ServingStatus = grpc::health::v1::HealthCheckResponse::ServingStatus;
  struct Watcher {
    std::shared_ptr<Stream> stream;
    bool known_service = false;
    bool writing = false;  // guarded by mu_
    int sent = -1;         // guarded by mu_: the last status written
  };
  using WatcherPtr = std::shared_ptr<Watcher>;

  void Check(const std::string& service, Reply reply);
  void Watch(const std::string& service, std::shared_ptr<Stream> stream);
  // Writes the present status unless it was the last or a write is under way, which comes back here when it is over.
  void Update(const WatcherPtr& watcher);

  // Health is answered also when the server is full, and not counted as work.
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max() / 2;
  Admission unlimited_{{kNoLimit, kNoLimit}, nullptr};
  const RouteContext context_{.admission = &unlimited_};

  Mutex mu_;
  bool serving_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::unordered_set<WatcherPtr> watchers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_SERVICES_HEALTH_SERVICE_H_
