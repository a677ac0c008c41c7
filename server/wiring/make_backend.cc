#include "server/wiring/make_backend.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/targets.h"
#include "kernels/cuda/probe.h"
#include "server/base/cgroup.h"
#include "server/schedule/cost_model.h"
#include "server/wiring/telemetry.h"

namespace normd {
namespace {

std::string NameOf(int device) { return absl::StrCat("cuda:", device); }

// A GPU that has run the measurement, and the costs that were measured.
struct Gpu {
  std::unique_ptr<Backend> backend;
  DeviceCost cost;
};

absl::StatusOr<Gpu> OpenGpu(const CudaBackendOptions& options, const GpuFactory& make_gpu, Clock& clock) {
  Gpu gpu;
  NORMD_ASSIGN_OR_RETURN(gpu.backend, make_gpu(options));
  NORMD_ASSIGN_OR_RETURN(gpu.cost, MeasureCost(*gpu.backend, clock));
  return gpu;
}

// By name of each requested GPU: OK when it is used, else the reason why not.
using Verdicts = std::map<std::string, absl::Status>;

// The verdict on a device that the driver lists, or on the line "cuda" that stands for all devices.
absl::Status VerdictOn(const std::string& name, const Config& config, const Verdicts& verdicts) {
  if (config.cuda == "off") return absl::UnavailableError("--cuda=off");
  if (const auto found = verdicts.find(name); found != verdicts.end()) return found->second;
  // The line stands for all devices when there is no driver or no toolkit.
  if (name == "cuda" && !verdicts.empty()) return verdicts.begin()->second;
  return absl::UnavailableError(absl::StrCat("--cuda_device is ", absl::StrJoin(config.cuda_device, ",")));
}

std::vector<DeviceInfo> ListDevices(const Config& config, const Verdicts& verdicts) {
  std::vector<DeviceInfo> devices;
  devices.push_back(
      {.name = "cpu",
       .usable = true,
       .detail = absl::StrCat(std::string(ActiveCpuTargetName()), ", ", BackendThreads(config), " threads")});
  const auto add = [&devices](const std::string& name, std::string detail, const absl::Status& verdict) {
    const std::string why(verdict.message());
    // When the device cannot be used at all, `detail` from the driver's list already says why.
    if (!absl::StrContains(detail, why)) absl::StrAppend(&detail, detail.empty() ? "" : "; ", "not used: ", why);
    devices.push_back({.name = name, .usable = verdict.ok(), .detail = std::move(detail)});
  };
  Verdicts unlisted = verdicts;
  for (const CudaDeviceInfo& cuda : ProbeCudaDevices()) {
    add(cuda.name, cuda.detail, VerdictOn(cuda.name, config, verdicts));
    if (cuda.name == "cuda") unlisted.clear();
    unlisted.erase(cuda.name);
  }
  for (const auto& [name, verdict] : unlisted) add(name, "", verdict);
  return devices;
}

}  // namespace

int64_t BackendThreads(const Config& config) { return config.threads != 0 ? config.threads : AllowedCpus(); }

OpenedBackend OpenBackend(const Config& config, Metrics* metrics, Log* log, Clock* clock, const GpuFactory& make_gpu) {
  OpenedBackend opened;
  opened.undecided = std::make_unique<UndecidedCounts>();
  const NearestOptions nearest = {.counts = opened.undecided.get()};
  opened.cpu = MakeCpuBackend({.threads = static_cast<int>(BackendThreads(config)), .nearest = nearest});
  Verdicts verdicts;
  std::vector<ScheduledDevice> scheduled;
  for (const int number : config.cuda == "off" ? std::vector<int>() : config.CudaDevices()) {
    absl::StatusOr<Gpu> gpu = OpenGpu({.device = number, .nearest = nearest}, make_gpu, *clock);
    verdicts[NameOf(number)] = gpu.status();
    if (!gpu.ok()) continue;
    scheduled.push_back(
        {.name = NameOf(number),
         .backend = gpu->backend.get(),
         .cost = gpu->cost,
         .queue = {.max_in_flight = CudaBackendOptions().streams, .limits = {.max_delay = config.batch_delay}}});
    opened.gpus.push_back(std::move(gpu->backend));
    opened.cuda_devices.push_back(number);
  }
  opened.devices = ListDevices(config, verdicts);
  const absl::StatusOr<DeviceCost> cpu_cost =
      scheduled.empty() ? absl::StatusOr<DeviceCost>(DeviceCost()) : MeasureCost(*opened.cpu, *clock);
  opened.scheduler =
      std::make_unique<DeviceScheduler>(opened.cpu.get(), cpu_cost.value_or(DeviceCost()), std::move(scheduled), clock,
                                        MakeSchedulerObserver(metrics, log));
  return opened;
}

}  // namespace normd
