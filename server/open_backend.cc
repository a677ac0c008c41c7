#include "server/open_backend.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/targets.h"
#include "kernels/cuda/probe.h"
#include "server/base/status_macros.h"
#include "server/batch/batching_backend.h"
#include "server/batch/cost_model.h"
#include "server/observe.h"

namespace normd {
namespace {

std::string DeviceName(const Config& config) { return absl::StrCat("cuda:", config.cuda_device); }

// A GPU that has run something, and what both devices cost.
struct Gpu {
  std::unique_ptr<Backend> backend;
  DeviceCost cpu_cost, cost;
};

absl::StatusOr<Gpu> OpenGpu(const Config& config, const GpuFactory& make_gpu, Backend& cpu, Clock& clock) {
  if (config.cuda == "off") return absl::UnavailableError("--cuda=off");
  Gpu gpu;
  NORMD_ASSIGN_OR_RETURN(gpu.backend, make_gpu({.device = static_cast<int>(config.cuda_device)}, &cpu));
  NORMD_ASSIGN_OR_RETURN(gpu.cpu_cost, MeasureCost(cpu, clock));
  NORMD_ASSIGN_OR_RETURN(gpu.cost, MeasureCost(*gpu.backend, clock));
  return gpu;
}

// `unused`: why the GPU that was asked for is not used; OK: it is.
std::vector<DeviceInfo> ListDevices(const Config& config, const absl::Status& unused) {
  std::vector<DeviceInfo> devices;
  devices.push_back(
      {.name = "cpu",
       .usable = true,
       .detail = absl::StrCat(std::string(ActiveCpuTargetName()), ", ", BackendThreads(config), " threads")});
  for (CudaDeviceInfo& cuda : ProbeCudaDevices()) {
    DeviceInfo device = {.name = std::move(cuda.name), .detail = std::move(cuda.detail)};
    const bool chosen = device.name == DeviceName(config);
    device.usable = chosen && unused.ok();
    const std::string why = !unused.ok() ? std::string(unused.message())
                            : chosen     ? ""
                                         : absl::StrCat("--cuda_device is ", config.cuda_device);
    // Where it cannot be used at all the driver's list has said so.
    if (!absl::StrContains(device.detail, why)) absl::StrAppend(&device.detail, "; not used: ", why);
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace

int64_t BackendThreads(const Config& config) {
  return config.threads != 0 ? config.threads : std::max<int64_t>(1, std::thread::hardware_concurrency());
}

OpenedBackend OpenBackend(const Config& config, Metrics* metrics, Log* log, Clock* clock, const GpuFactory& make_gpu) {
  std::unique_ptr<Backend> cpu = MakeCpuBackend({.threads = static_cast<int>(config.threads)});
  absl::StatusOr<Gpu> gpu = OpenGpu(config, make_gpu, *cpu, *clock);
  PlacementOptions options;
  std::unique_ptr<Backend> device;
  if (gpu.ok()) {
    options.cpu = gpu->cpu_cost;
    options.device = gpu->cost;
    options.device_name = DeviceName(config);
    const BatchingOptions batching = {.max_in_flight = CudaBackendOptions().streams,
                                      .limits = {.max_delay = config.batch_delay}};
    device = std::make_unique<BatchingBackend>(std::move(gpu->backend), batching, clock, MakeBatchObserver(metrics));
  }
  OpenedBackend opened;
  opened.devices = ListDevices(config, gpu.status());
  opened.has_device = gpu.ok();
  opened.backend = std::make_unique<PlacedBackend>(std::move(cpu), std::move(device), std::move(options),
                                                   MakePlacementObserver(metrics, log));
  return opened;
}

}  // namespace normd
