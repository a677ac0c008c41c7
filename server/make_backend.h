// Chooses and wires what computes: the CPU backend, those of the GPUs that can be had, and the scheduler over them.
// In the path: around it; server.cc calls it once at start. The only code besides it that knows which backends there
// are. Threads: called from one; what it makes is safe from any thread.
#ifndef NORMD_SERVER_MAKE_BACKEND_H_
#define NORMD_SERVER_MAKE_BACKEND_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/backend.h"
#include "server/base/clock.h"
#include "server/config.h"
#include "server/metrics.h"
#include "server/obs/log.h"
#include "server/rpc/grpc_server.h"
#include "server/schedule/device_scheduler.h"

namespace normd {

// Threads of the CPU backend: at least 1, also where the system does not say.
int64_t BackendThreads(const Config& config);

struct OpenedBackend {
  std::unique_ptr<Backend> cpu;
  std::vector<std::unique_ptr<Backend>> gpus;
  std::vector<int> cuda_devices;               // of `gpus`, as the driver counts them
  std::unique_ptr<DeviceScheduler> scheduler;  // over the backends above
  std::vector<DeviceInfo> devices;             // the CPU, then what the CUDA driver lists: for the log and Describe
};

// MakeCudaBackend; another one in tests.
using GpuFactory = std::function<absl::StatusOr<std::unique_ptr<Backend>>(const CudaBackendOptions& options)>;

// Never fails: without a GPU the CPU does everything, and `devices` says why. Each GPU is measured, which takes some
// 50 ms. Borrows the three, which must outlive what is opened.
OpenedBackend OpenBackend(const Config& config, Metrics* metrics, Log* log, Clock* clock,
                          const GpuFactory& make_gpu = &MakeCudaBackend);

}  // namespace normd

#endif  // NORMD_SERVER_MAKE_BACKEND_H_
