// normd.v1.SharedMemory: registers regions by POSIX name or CUDA IPC handle. A region lives as long as the call that
// registered it.
// In the path: beside it; ranges of later requests name the regions.
// Threads: safe from any thread; no lock is held while the table maps or a stream is written to. Mapping and unmapping
// take the system up to 0.1 s per GiB, so the work pool does both, never a queue's thread.
#ifndef NORMD_SERVER_RPC_SERVICES_SHARED_MEMORY_SERVICE_H_
#define NORMD_SERVER_RPC_SERVICES_SHARED_MEMORY_SERVICE_H_

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "normd/v1/shared_memory.pb.h"
#include "server/base/mutex.h"
#include "server/rpc/codec/message.h"
#include "server/rpc/edge/route.h"
#include "server/shm/region_table.h"

namespace normd::rpc {

class SharedMemoryService {
 public:
  // `context` and `regions` must outlive the service, and the service must outlive its streams. With null `regions`,
  // every call is refused.
  SharedMemoryService(const RouteContext* context, RegionTable* regions) : context_(context), regions_(regions) {}
  ~SharedMemoryService();

  std::vector<Route> Routes();

  // Ends the call of every current and future registration with UNAVAILABLE, because such a call never ends by itself
  // and would delay a shutdown. Existing regions stay until the service is destroyed, for requests still in progress.
  void EndRegistrations();

 private:
  struct Registration {
    std::string owner, region;
  };

  void Register(const v1::RegisterRegionRequest& request, const std::shared_ptr<RpcCall>& stream,
                Observation observation);
  // Runs Register on the work pool.
  void RegisterLater(Parsed<v1::RegisterRegionRequest> request, std::shared_ptr<RpcCall> stream,
                     Observation observation);
  absl::StatusOr<Registration> AddRegion(const v1::RegisterRegionRequest& request, const RpcCall& stream);
  // Remembers the registration of `stream`. Returns false once registrations have ended.
  bool Keep(const std::shared_ptr<RpcCall>& stream, const Registration& registration);
  void Remove(const std::shared_ptr<RpcCall>& stream);

  const RouteContext* const context_;
  RegionTable* const regions_;

  Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::unordered_map<std::shared_ptr<RpcCall>, Registration> open_ ABSL_GUARDED_BY(mu_);
  std::vector<Registration> left_ ABSL_GUARDED_BY(mu_);  // of calls that EndRegistrations ended
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_SERVICES_SHARED_MEMORY_SERVICE_H_
