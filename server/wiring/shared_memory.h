// The shared memory of a server: the table of regions, and a registrar beside each Unix socket of gRPC.
// In the path: server.cc makes one SharedMemory before gRPC listens, and lends the table to rpc.
// Threads: Start, Stop and the destructor are called from one thread; `table` is safe from any thread.
#ifndef NORMD_SERVER_WIRING_SHARED_MEMORY_H_
#define NORMD_SERVER_WIRING_SHARED_MEMORY_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/tenant_quotas.h"
#include "server/obs/log.h"
#include "server/options/config.h"
#include "server/shm/region_table.h"
#include "server/shm/registrar.h"

namespace normd {

// The limits that --max_regions, --max_region_bytes and --shm_prefix set. One owner may have a quarter of the regions
// but all of the bytes, because a single training job may be the only caller.
RegionLimits RegionLimitsOf(const Config& config);

// The owner of a region, and the permission to register one.
struct RegionRules {
  TenantQuotaTable* quotas = nullptr;  // borrowed; null: tenants have no limits of their own
  RegistrarHooks hooks = {};
};

// Opens CUDA memory and events of other processes on `devices` through the driver; with no devices there is no CUDA
// memory to share. Failures to close them go to `log`, which must outlive every range.
CudaOpener CudaIpcOpener(std::vector<int> devices, Log* log);

class SharedMemory {
 public:
  // Listens beside each of `unix_paths`. Opens CUDA memory with `cuda`, and unmaps large regions on `work_pool`, which
  // must outlive this object and every range. Returns the errors of PrepareUnixSocket and Registrar::Start, and then
  // leaves nothing behind. REQUIRES: config.SharedMemoryOn().
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Start(const Config& config,
                                                             const std::vector<std::string>& unix_paths,
                                                             CudaOpener cuda, WorkPool* work_pool = nullptr,
                                                             const RegionRules& rules = {});

  // Ends registration and drops all regions; a region in use is unmapped after the requests that use it. Idempotent.
  void Stop() { registrars_.clear(); }

  RegionTable& table() { return table_; }

 private:
  SharedMemory(RegionLimits limits, CudaOpener cuda, WorkPool* work_pool)
      : table_(std::move(limits), std::move(cuda), work_pool) {}

  RegionTable table_;
  std::vector<std::unique_ptr<Registrar>> registrars_;  // borrow `table_`
};

}  // namespace normd

#endif  // NORMD_SERVER_WIRING_SHARED_MEMORY_H_
