// grpc.health.v1.Health, served on the same queues as everything else: gRPC's own implementation would answer from
// sleeping threads of the callback API. Knows the services "", "normd.v1.Normalizer" and "normd.v1.Sessions".
// In the path: beside it; exempt from admission.
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
#include "server/rpc/edge/admission.h"
#include "server/rpc/edge/route.h"

namespace normd::rpc {

class HealthService {
 public:
  // The routes of Check and Watch. The service must outlive their streams.
  std::vector<Route> Routes();

  // Sets the answer and tells every watcher. Before the first call, the answer is NOT_SERVING.
  void SetServing(bool serving);

  // Ends every current and future watch with UNAVAILABLE, because a watch never ends by itself and would delay a
  // shutdown.
  void EndWatches();

 private:
  using ServingStatus = grpc::health::v1::HealthCheckResponse::ServingStatus;
  struct Watcher {
    std::shared_ptr<RpcCall> stream;
    bool known_service = false;
    bool writing = false;  // guarded by mu_
    int sent = -1;         // guarded by mu_; the last status written
  };
  using WatcherPtr = std::shared_ptr<Watcher>;

  void Check(const std::string& service, Reply reply);
  void Watch(const std::string& service, std::shared_ptr<RpcCall> stream);
  // Writes the current status unless it was the last one written, or a write is in progress, which calls Update again
  // at its end.
  void Update(const WatcherPtr& watcher);

  // Health is answered even when the server is full, and does not count as work.
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
