#include "kernels/cuda/backend.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/job_list.h"
#include "kernels/cuda/prepared_parameters.h"
#include "kernels/cuda/run.h"
#include "kernels/cuda/status.h"

namespace normd {
namespace {

using cuda::DeviceLimits;
using cuda::WorkerMemory;

struct FoundDevice {
  int number = 0;
  int major = 0, minor = 0;
  DeviceLimits limits;
  int64_t worker_bytes = 0;  // device memory for each stream worker
};

struct Submission {
  std::vector<Job> jobs;
  Backend::Done done;
};

class CudaBackend final : public Backend {
 public:
  CudaBackend(const FoundDevice& device, const cuda::DeviceMemory& memory, const NearestOptions& nearest)
      : device_(device), memory_(memory), deferred_(std::make_shared<cuda::DeferredFree>(memory)), nearest_(nearest) {}

  ~CudaBackend() override {
    {
      const std::lock_guard<std::mutex> lock(mu_);
      ended_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    cudaSetDevice(device_.number);  // what waits to be freed is this device's
  }

  // Starts the stream workers. Called once, before any other method.
  absl::Status Start(int workers) {
    for (int i = 0; i < workers; ++i) {
      cudaStream_t stream = nullptr;
      NORMD_CUDA_RETURN_STATUS(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
      auto memory = std::make_unique<WorkerMemory>(cuda::OwnedStream(stream), device_.worker_bytes, memory_, deferred_);
      if (absl::Status status = memory->staging.Start(); !status.ok()) return status;
      workers_.emplace_back([this, memory = std::move(memory)] { Work(memory.get()); });
    }
    return absl::OkStatus();
  }

  std::string_view name() const override { return "cuda"; }

  std::string KernelName(const NormPlan& plan) const override {
    std::string kernel = absl::StrCat("cuda/sm_", device_.major, device_.minor);
    if (plan.power_groups > 0) return kernel + "/power";
    if (plan.pattern == Pattern::kColumns) return kernel + "/columns";
    const bool whole = cuda::RunsAsWholeRows(device_.limits, plan) || cuda::RunsAsNearestRows(device_.limits, plan);
    return kernel + (whole ? "/whole_rows" : "/rows");
  }

  bool Supports(const NormPlan& /*plan*/) const override { return true; }
  // A scattered x becomes contiguous on its way to the device in any case.
  bool AcceptsScattered(const NormPlan& /*plan*/) const override { return true; }

  MemorySpace memory_space() const override { return CudaSpace(device_.number); }

  std::shared_ptr<const PreparedParameters> Prepare(std::shared_ptr<const HostParameters> parameters) const override {
    return std::make_shared<cuda::CudaParameters>(std::move(parameters), deferred_);
  }

  void Submit(std::vector<Job> jobs, Done done) override {
    if (lost_) return std::move(done)(Lost());
    {
      const std::lock_guard<std::mutex> lock(mu_);
      queue_.push_back({std::move(jobs), std::move(done)});
    }
    wake_.notify_one();
  }

 private:
  static absl::Status Lost() { return absl::UnavailableError("the CUDA device is lost"); }

  // A stream worker: one CUDA stream and one thread, which waits for the device. Each worker runs one job list at a
  // time, so that the copies of one list overlap with the kernels of another.
  void Work(WorkerMemory* memory) {
    for (;;) {
      std::unique_lock<std::mutex> lock(mu_);
      wake_.wait(lock, [this] { return ended_ || !queue_.empty(); });
      if (queue_.empty()) break;
      Submission submission = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      std::move(submission.done)(Run(submission.jobs, memory));
    }
    cudaSetDevice(device_.number);  // `memory` ends with this thread
  }

  absl::Status Run(const std::vector<Job>& jobs, WorkerMemory* memory) {
    if (lost_) return Lost();
    // The callback of the list before may have closed memory of another device (ipc.h).
    absl::Status status = cuda::StatusOf(cudaSetDevice(device_.number), "cudaSetDevice");
    if (status.ok()) status = cuda::RunJobList(device_.limits, jobs, &nearest_, memory);
    if (absl::IsUnavailable(status)) lost_ = true;
    return status;
  }

  const FoundDevice device_;
  const cuda::DeviceMemory memory_;
  const std::shared_ptr<cuda::DeferredFree> deferred_;
  NearestHost nearest_;
  std::atomic<bool> lost_{false};

  std::mutex mu_;
  std::condition_variable wake_;
  bool ended_ = false;            // guarded by mu_
  std::deque<Submission> queue_;  // guarded by mu_
  std::vector<std::thread> workers_;
};

absl::Status NotUsable(const absl::Status& status) { return absl::UnavailableError(status.message()); }

// Returns UNAVAILABLE for a CUDA error while devices are probed. StatusOf would call the device lost, but no device was
// in use yet.
#define NORMD_CUDA_RETURN_UNUSABLE(expression, what)                                                             \
  do {                                                                                                           \
    const cudaError_t normd_cuda_error = (expression);                                                           \
    if (normd_cuda_error != cudaSuccess) return absl::UnavailableError(cuda::ErrorText(normd_cuda_error, what)); \
  } while (false)

absl::StatusOr<FoundDevice> Find(const CudaBackendOptions& options) {
  int count = 0;
  NORMD_CUDA_RETURN_UNUSABLE(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (options.device < 0 || options.device >= count) {
    return absl::UnavailableError(absl::StrCat("no CUDA device ", options.device, ": there are ", count));
  }
  cudaDeviceProp properties;
  NORMD_CUDA_RETURN_UNUSABLE(cudaGetDeviceProperties(&properties, options.device), "cudaGetDeviceProperties");
  if (properties.major < 8) {
    return absl::UnavailableError(absl::StrCat("compute capability ", properties.major, ".", properties.minor,
                                               ": kernels are built for 8.0 and above"));
  }
  // Creates a context, which takes memory of the device.
  NORMD_CUDA_RETURN_UNUSABLE(cudaSetDevice(options.device), "cudaSetDevice");
  size_t free_bytes = 0;
  size_t all_bytes = 0;
  NORMD_CUDA_RETURN_UNUSABLE(cudaMemGetInfo(&free_bytes, &all_bytes), "cudaMemGetInfo");
  const int64_t bytes = options.max_device_bytes > 0 ? options.max_device_bytes : static_cast<int64_t>(free_bytes) / 2;
  FoundDevice device = {.number = options.device, .major = properties.major, .minor = properties.minor};
  device.limits = {.multiprocessors = properties.multiProcessorCount,
                   .shared_bytes = static_cast<int64_t>(properties.sharedMemPerBlockOptin)};
  device.limits.has_clusters = cuda::HasClusters(device.limits, options.device);
  device.worker_bytes = bytes / options.streams;
  return device;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions& options) {
  absl::StatusOr<FoundDevice> device = Find(options);
  if (!device.ok()) return device.status();
  const absl::StatusOr<cuda::DeviceMemory> memory =
      cuda::DeviceMemory::Of(options.device, device->worker_bytes * options.streams);
  if (!memory.ok()) return NotUsable(memory.status());
  auto backend = std::make_unique<CudaBackend>(*device, *memory, options.nearest);
  if (absl::Status status = backend->Start(options.streams); !status.ok()) return NotUsable(status);
  return backend;
}

}  // namespace normd
