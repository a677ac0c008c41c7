// normd.v1.SharedMemory: regions by POSIX name or CUDA IPC handle, each as long as the call that registered it.
// In the path: beside it; what it registers is named by the ranges of later requests.
// Threads: safe from any thread; no lock is held while the table maps or a stream is written to. Mapping and unmapping
// take the system up to 0.1 s a GiB, so that both are the pool's work and never a queue's.
#ifndef NORMD_SERVER_RPC_SERVICES_SHARED_MEMORY_SERVICE_H_
#define NORMD_SERVER_RPC_SERVICES_SHARED_MEMORY_SERVICE_H_

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "normd/v1/shared_memory.pb.h"
#include "server/base/mutex.h"
#include "server/rpc/codec/message.h"
#include "server/rpc/transport/route.h"
#include "server/shm/region_table.h"

namespace normd::rpc {

class SharedMemoryService {
 public:
  // `context` and `regions` (null: every call is refused) must outlive the service, and the service its streams.
  SharedMemoryService(const RouteContext* context, RegionTable* regions) : context_(context), regions_(regions) {}
  ~SharedMemoryService();

  std::vector<Route> Routes();

  // Ends every registration's call, present and future, with UNAVAILABLE: none ends by itself, and they would hold up a
  // shutdown. Their regions stay until the service goes, for the requests that finish meanwhile.
  void EndRegistrations();

 private:
  struct Registration {
    std::string owner, region;
  };

  void Register(const v1::RegisterRegionRequest& request, const std::shared_ptr<Stream>& stream,
                Observation observation);
  // The same in the pool.
  void RegisterLater(Parsed<v1::RegisterRegionRequest> request, std::shared_ptr<Stream> stream,
                     Observation observation);
  absl::StatusOr<Registration> AddRegion(const v1::RegisterRegionRequest& request, const Stream& stream);
  // False once registrations have ended.
  bool Keep(const std::shared_ptr<Stream>& stream, const Registration& registration);
  void Remove(const std::shared_ptr<Stream>& stream);

  const RouteContext* const context_;
  RegionTable* const regions_;

  Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::unordered_map<std::shared_ptr<Stream>, Registration> open_ ABSL_GUARDED_BY(mu_);
  std::vector<Registration> left_ ABSL_GUARDED_BY(mu_);  // by calls that were ended
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_SERVICES_SHARED_MEMORY_SERVICE_H_
