// Chooses and wires the backends: the CPU, the GPUs that can be used, and the device scheduler over them. No other code
// knows which backends exist.
// In the path: around it; server.cc calls OpenBackend once at the start.
// Threads: OpenBackend is called from one thread; the backends and the scheduler are safe from any thread.
#ifndef NORMD_SERVER_WIRING_MAKE_BACKEND_H_
#define NORMD_SERVER_WIRING_MAKE_BACKEND_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/backend.h"
#include "kernels/nearest.h"
#include "server/base/clock.h"
#include "server/obs/log.h"
#include "server/options/config.h"
#include "server/rpc/rpc_server.h"
#include "server/schedule/device_scheduler.h"
#include "server/wiring/metrics.h"

namespace normd {

// The number of threads of the CPU backend: at least 1, even where the number of cores is unknown.
int64_t BackendThreads(const Config& config);

struct OpenedBackend {
  std::unique_ptr<UndecidedCounts> undecided;  // of all backends below, which borrow it
  std::unique_ptr<Backend> cpu;
  std::vector<std::unique_ptr<Backend>> gpus;
  std::vector<int> cuda_devices;               // the driver's device number of each of `gpus`
  std::unique_ptr<DeviceScheduler> scheduler;  // borrows the backends above
  std::vector<DeviceInfo> devices;             // the CPU, then what the CUDA driver lists; for the log and Describe
};

// MakeCudaBackend, or a fake in tests.
using GpuFactory = std::function<absl::StatusOr<std::unique_ptr<Backend>>(const CudaBackendOptions& options)>;

// Opens the backends that `config` asks for. Never fails: without a GPU the CPU does everything, and `devices` says
// why. Measures each GPU, which takes some 50 ms. Borrows `metrics`, `log` and `clock`, which must outlive the result.
OpenedBackend OpenBackend(const Config& config, Metrics* metrics, Log* log, Clock* clock,
                          const GpuFactory& make_gpu = &MakeCudaBackend);

}  // namespace normd

#endif  // NORMD_SERVER_WIRING_MAKE_BACKEND_H_
