#include "server/wiring/shared_memory.h"

#include <algorithm>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/cuda/ipc.h"
#include "server/options/listen.h"

namespace normd {

RegionLimits RegionLimitsOf(const Config& config) {
  RegionLimits limits;
  limits.max_regions = static_cast<int>(config.max_regions);
  limits.max_owner_regions = std::max(1, limits.max_regions / 4);
  limits.max_region_bytes = limits.max_total_bytes = limits.max_owner_bytes = config.max_region_bytes;
  limits.posix_prefixes.clear();
  if (!config.shm_prefix.empty()) limits.posix_prefixes.push_back(config.shm_prefix);
  return limits;
}

CudaOpener CudaIpcOpener(std::vector<int> devices, Log* log) {
  CudaOpener opener;
  opener.devices = std::move(devices);
  opener.open = [](std::string_view handle, int device) -> absl::StatusOr<CudaAllocation> {
    NORMD_ASSIGN_OR_RETURN(const CudaIpcMemory memory, OpenCudaIpc(handle, device));
    return CudaAllocation{static_cast<std::byte*>(memory.data), memory.size_bytes};
  };
  opener.close = [log](const CudaAllocation& allocation, int device) {
    const absl::Status closed = CloseCudaIpc(allocation.data, device);
    if (closed.ok()) return;
    log->Error("CUDA memory of a client cannot be closed",
               {{"device", device}, {"error", std::string(closed.message())}});
  };
  opener.open_event = &OpenCudaIpcEvent;
  opener.is_event_completed = &IsCudaIpcEventCompleted;
  opener.close_event = [log](void* event, int device) {
    const absl::Status closed = CloseCudaIpcEvent(event, device);
    if (closed.ok()) return;
    log->Error("a CUDA event of a client cannot be closed",
               {{"device", device}, {"error", std::string(closed.message())}});
  };
  return opener;
}

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Start(const Config& config,
                                                                  const std::vector<std::string>& unix_paths,
                                                                  CudaOpener cuda, WorkPool* work_pool,
                                                                  const RegionRules& rules) {
  RegionLimits limits = RegionLimitsOf(config);
  limits.quotas = rules.quotas;
  std::unique_ptr<SharedMemory> memory(new SharedMemory(std::move(limits), std::move(cuda), work_pool));
  for (const std::string& grpc_path : unix_paths) {
    RegistrarOptions options;
    options.socket_path = RegistrarPath(grpc_path);
    options.max_connections = static_cast<int>(config.max_regions);  // each useful connection has a region
    options.hooks = rules.hooks;
    NORMD_ASSIGN_OR_RETURN(const UnixSocketAccess access,
                           ParseUnixSocketAccess(config.unix_socket_mode, config.unix_socket_group));
    NORMD_RETURN_IF_ERROR(PrepareUnixSocket(options.socket_path, access));
    NORMD_ASSIGN_OR_RETURN(std::unique_ptr<Registrar> registrar, Registrar::Start(options, &memory->table_));
    memory->registrars_.push_back(std::move(registrar));
  }
  return memory;
}

}  // namespace normd
