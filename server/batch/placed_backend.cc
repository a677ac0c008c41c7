#include "server/batch/placed_backend.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/errors.h"
#include "server/base/mutex.h"
#include "server/base/status_macros.h"
#include "server/batch/job_list.h"

namespace normd {
namespace {

// One Done for several lists, with the first error.
class Joined {
 public:
  Joined(int parts, Backend::Done done) : left_(parts), done_(std::move(done)) {}

  void EndOne(absl::Status status) {
    {
      MutexLock lock(mu_);
      first_error_.Update(std::move(status));
      if (--left_ > 0) return;
    }
    std::move(done_)(std::move(first_error_));
  }

 private:
  Mutex mu_;
  int left_ ABSL_GUARDED_BY(mu_);
  absl::Status first_error_;  // the last one to end has it alone
  Backend::Done done_;
};

bool NamesDevice(const Job& job) { return job.in_cuda.any() || job.errand.device == Device::kCuda; }

void Note(const Job& job, const Backend& backend, Device device, bool fell_back) {
  if (job.errand.executed == nullptr) return;
  *job.errand.executed = {.device = device, .kernel = backend.KernelName(*job.plan), .fell_back = fell_back};
}

}  // namespace

struct PlacedBackend::OnDevice {
  std::vector<Job> jobs;
  std::vector<std::unique_ptr<std::byte[]>> together;  // inputs that came in pieces
  int64_t bytes = 0;
  bool may_fall_back = false;

  // Gives the device whole inputs where it needs them and nobody has made room.
  void PutTogether(const Backend& device) {
    for (Job& job : jobs) {
      if (job.x_segments.empty() || job.x_buffer != nullptr || device.TakesSegments(*job.plan)) continue;
      const int64_t size_bytes = job.plan->elements * SizeOf(job.plan->dtype);
      together.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(size_bytes)));
      GatherSegments(job.x_segments, 0, size_bytes, together.back().get());
      job.x = together.back().get();
      job.x_segments = {};
    }
  }
};

PlacedBackend::PlacedBackend(std::unique_ptr<Backend> cpu, std::unique_ptr<Backend> device, PlacementOptions options,
                             PlacementObserver observer)
    : options_(std::move(options)), observer_(std::move(observer)), cpu_(std::move(cpu)), device_(std::move(device)) {}

std::string PlacedBackend::KernelName(const NormPlan& plan) const {
  const bool on_device = FastIsForDevice(plan) && !lost();
  return on_device ? device_->KernelName(plan) : cpu_->KernelName(plan);
}

absl::Status PlacedBackend::WhyNotOnDevice(const NormPlan& plan) const {
  if (device_ == nullptr) return DeviceNotAvailableError("this server has no CUDA backend");
  if (lost()) return DeviceNotAvailableError("the device was lost");
  if (!device_->Supports(plan)) return DeviceNotAvailableError("the device has no kernel for this plan");
  return absl::OkStatus();
}

absl::StatusOr<Executed> PlacedBackend::Choose(const NormPlan& plan, Device device) const {
  if (device == Device::kCuda) {
    NORMD_RETURN_IF_ERROR(WhyNotOnDevice(plan));
    return Executed{.device = Device::kCuda, .kernel = device_->KernelName(plan)};
  }
  const bool fast_on_device = device != Device::kCpu && FastIsForDevice(plan);
  if (!fast_on_device) return Executed{.device = Device::kCpu, .kernel = cpu_->KernelName(plan)};
  if (lost()) return Executed{.device = Device::kCpu, .kernel = cpu_->KernelName(plan), .fell_back = true};
  return Executed{.device = Device::kCuda, .kernel = device_->KernelName(plan)};
}

bool PlacedBackend::TakesSegments(const NormPlan& plan) const {
  if (!cpu_->TakesSegments(plan)) return false;
  return device_ == nullptr || plan.elements <= cpu_->inline_elements() || device_->TakesSegments(plan);
}

absl::StatusOr<std::shared_ptr<const Layer>> PlacedBackend::Prepare(const ParameterViews& parameters,
                                                                    double weight_offset) const {
  if (device_ != nullptr && !lost()) {
    absl::StatusOr<std::shared_ptr<const Layer>> layer = device_->Prepare(parameters, weight_offset);
    if (layer.ok()) return layer;
  }
  return cpu_->Prepare(parameters, weight_offset);
}

bool PlacedBackend::FastIsForDevice(const NormPlan& plan) const {
  return plan.precision == Precision::kFast && device_ != nullptr && device_->Supports(plan) &&
         plan.elements * SizeOf(plan.dtype) >= options_.fast_device_bytes && plan.elements > cpu_->inline_elements();
}

bool PlacedBackend::StaysOnCpu(const std::vector<Job>& jobs) const {
  return std::none_of(jobs.begin(), jobs.end(), &NamesDevice) &&
         (device_ == nullptr || ElementsOf(jobs) <= cpu_->inline_elements());
}

PlacedBackend::Place PlacedBackend::PlaceOf(const Job& job, bool is_small) const {
  if (NamesDevice(job)) return Place::kDeviceAlone;
  if (device_ == nullptr || job.errand.device == Device::kCpu) return Place::kCpu;
  const NormPlan& plan = *job.plan;
  if (plan.precision == Precision::kFast) {
    if (!FastIsForDevice(plan)) return Place::kCpu;
    if (lost()) return Place::kCpuForLostDevice;
    return ReplacesInput(job) ? Place::kDeviceAlone : Place::kDevice;
  }
  // What the CPU could not take over has the same bytes there, and never an error.
  if (is_small || lost() || ReplacesInput(job) || !device_->Supports(plan)) return Place::kCpu;
  return Place::kEither;
}

bool PlacedBackend::DeviceIsCheaper(int64_t bytes) const {
  const int64_t on_cpu = bytes + cpu_queued_bytes_.load(std::memory_order_relaxed);
  const int64_t on_device = bytes + device_queued_bytes_.load(std::memory_order_relaxed);
  return options_.device.Microseconds(on_device) < options_.cpu.Microseconds(on_cpu);
}

absl::StatusOr<PlacedBackend::Parts> PlacedBackend::Split(std::vector<Job> jobs) const {
  Parts parts;
  std::vector<Job> either;
  const bool is_small = ElementsOf(jobs) <= cpu_->inline_elements();
  for (Job& job : jobs) {
    switch (PlaceOf(job, is_small)) {
      case Place::kDeviceAlone:
        NORMD_RETURN_IF_ERROR(WhyNotOnDevice(*job.plan));
        parts.device_alone.push_back(std::move(job));
        break;
      case Place::kDevice:
        parts.device.push_back(std::move(job));
        break;
      case Place::kEither:
        either.push_back(std::move(job));
        break;
      case Place::kCpuForLostDevice:
        parts.fell_back = true;
        Note(job, *cpu_, Device::kCpu, /*fell_back=*/true);
        parts.cpu.push_back(std::move(job));
        break;
      case Place::kCpu:
        Note(job, *cpu_, Device::kCpu, /*fell_back=*/false);
        parts.cpu.push_back(std::move(job));
        break;
    }
  }
  const bool to_device = !either.empty() && DeviceIsCheaper(BytesMoved(either));
  for (Job& job : either) {
    if (!to_device) Note(job, *cpu_, Device::kCpu, /*fell_back=*/false);
    (to_device ? parts.device : parts.cpu).push_back(std::move(job));
  }
  return parts;
}

void PlacedBackend::Submit(std::vector<Job> jobs, Done done) {
  if (StaysOnCpu(jobs)) {
    for (const Job& job : jobs) Note(job, *cpu_, Device::kCpu, /*fell_back=*/false);
    return RunOnCpu(std::move(jobs), std::move(done));
  }
  absl::StatusOr<Parts> parts = Split(std::move(jobs));
  if (!parts.ok()) return std::move(done)(parts.status());
  if (parts->fell_back && observer_.on_fallback != nullptr) observer_.on_fallback(FallbackReason::kLost);
  if (parts->device.empty() && parts->device_alone.empty()) return RunOnCpu(std::move(parts->cpu), std::move(done));
  const int count =
      (parts->cpu.empty() ? 0 : 1) + (parts->device.empty() ? 0 : 1) + (parts->device_alone.empty() ? 0 : 1);
  const auto joined = std::make_shared<Joined>(count, std::move(done));
  const auto end_one = [joined](absl::Status status) { joined->EndOne(std::move(status)); };
  // The devices first: what the CPU runs may run here and now.
  if (!parts->device.empty()) RunOnDevice(std::move(parts->device), /*may_fall_back=*/true, end_one);
  if (!parts->device_alone.empty()) RunOnDevice(std::move(parts->device_alone), /*may_fall_back=*/false, end_one);
  if (!parts->cpu.empty()) RunOnCpu(std::move(parts->cpu), end_one);
}

void PlacedBackend::RunOnCpu(std::vector<Job> jobs, Done done) {
  if (observer_.on_jobs != nullptr) observer_.on_jobs(Device::kCpu, static_cast<int64_t>(jobs.size()));
  if (ElementsOf(jobs) <= cpu_->inline_elements()) return cpu_->Submit(std::move(jobs), std::move(done));
  const int64_t bytes = BytesMoved(jobs);
  cpu_queued_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  cpu_->Submit(std::move(jobs), [this, bytes, done = std::move(done)](absl::Status status) mutable {
    cpu_queued_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    std::move(done)(std::move(status));
  });
}

void PlacedBackend::RunOnDevice(std::vector<Job> jobs, bool may_fall_back, Done done) {
  if (observer_.on_jobs != nullptr) observer_.on_jobs(Device::kCuda, static_cast<int64_t>(jobs.size()));
  for (const Job& job : jobs) Note(job, *device_, Device::kCuda, /*fell_back=*/false);
  OnDevice kept = {.jobs = std::move(jobs), .may_fall_back = may_fall_back};
  kept.PutTogether(*device_);
  kept.bytes = BytesMoved(kept.jobs);
  device_queued_bytes_.fetch_add(kept.bytes, std::memory_order_relaxed);
  std::vector<Job> sent = kept.jobs;
  device_->Submit(std::move(sent), [this, kept = std::move(kept), done = std::move(done)](absl::Status status) mutable {
    EndOnDevice(std::move(kept), std::move(status), std::move(done));
  });
}

void PlacedBackend::EndOnDevice(OnDevice ran, absl::Status status, Done done) {
  device_queued_bytes_.fetch_sub(ran.bytes, std::memory_order_relaxed);
  const bool is_lost = absl::IsUnavailable(status);
  if (is_lost) MarkLost(status);
  const bool falls_back = ran.may_fall_back && (is_lost || absl::IsResourceExhausted(status));
  if (!falls_back) {
    for (const Job& job : ran.jobs) {
      Executed* const executed = job.errand.executed;
      if (executed != nullptr && executed->kernel.empty()) executed->kernel = device_->KernelName(*job.plan);
    }
    return std::move(done)(std::move(status));
  }
  if (observer_.on_fallback != nullptr) observer_.on_fallback(is_lost ? FallbackReason::kLost : FallbackReason::kFull);
  for (const Job& job : ran.jobs) Note(job, *cpu_, Device::kCpu, /*fell_back=*/true);
  std::vector<Job> again = ran.jobs;
  RunOnCpu(std::move(again), [kept = std::move(ran), done = std::move(done)](absl::Status second) mutable {
    std::move(done)(std::move(second));
  });
}

void PlacedBackend::MarkLost(const absl::Status& why) {
  if (!lost_.exchange(true, std::memory_order_acq_rel) && observer_.on_lost != nullptr) observer_.on_lost(why);
}

std::string PlacedBackend::Calibration() const {
  if (device_ == nullptr) return "AUTO runs on the CPU";
  if (lost()) return absl::StrCat("AUTO runs on the CPU: ", options_.device_name, " was lost");
  return absl::StrCat("cpu ", CostText(options_.cpu), "; ", options_.device_name, " ", CostText(options_.device),
                      " both ways over PCIe; FAST: ", options_.device_name, " from ", options_.fast_device_bytes,
                      " bytes of x");
}

}  // namespace normd
