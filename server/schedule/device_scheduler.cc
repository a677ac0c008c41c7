#include "server/schedule/device_scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/base/mutex.h"
#include "server/schedule/job_list.h"

namespace normd {
namespace {

// A job must run on a device if its tensors lie there or its caller asks for that kind of device.
bool NamesDevice(const Job& job, Device asked) {
  return !job.on_host() || (asked != Device::kAuto && asked != Device::kCpu);
}

Device AskedFor(const Work& work, size_t job) { return work.devices.empty() ? Device::kAuto : work.devices[job]; }

bool CanRun(const Backend& device, const NormPlan& plan) { return !plan.RunsOnCpuAlone() && device.Supports(plan); }

// Copies scattered inputs into contiguous memory if `device` does not accept them and the job has no x_buffer. Returns
// the memory.
std::vector<std::unique_ptr<std::byte[]>> MakeContiguous(const Backend& device, std::vector<Job>& jobs) {
  std::vector<std::unique_ptr<std::byte[]>> rooms;
  for (Job& job : jobs) {
    if (job.x_segments.empty() || job.x_buffer != nullptr || device.AcceptsScattered(*job.plan)) continue;
    const int64_t size_bytes = job.plan->elements * SizeOf(job.plan->dtype);
    rooms.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(size_bytes)));
    GatherSegments(job.x_segments, 0, size_bytes, rooms.back().get());
    job.x = rooms.back().get();
    job.x_segments = {};
  }
  return rooms;
}

}  // namespace

// Parameters in the form of each device. The CPU uses the host's form, which all forms carry.
class DeviceScheduler::Parameters final : public PreparedParameters {
 public:
  Parameters(std::shared_ptr<const HostParameters> host, std::vector<std::shared_ptr<const PreparedParameters>> forms)
      : PreparedParameters(std::move(host)), forms_(std::move(forms)) {}

  const PreparedParameters* Of(size_t device) const { return forms_[device].get(); }

 private:
  const std::vector<std::shared_ptr<const PreparedParameters>> forms_;
};

struct DeviceScheduler::DeviceState {
  DeviceState(size_t the_index, const ScheduledDevice& device, Clock* clock, const QueueObserver& observer)
      : index(the_index), info(device), queue(device.backend, device.queue, clock, observer) {}

  const size_t index;  // in devices_
  const ScheduledDevice info;
  std::atomic<bool> lost{false};
  std::atomic<int64_t> queued_bytes{0};
  DeviceQueue queue;
};

// The jobs of a Work that run on one device, or on the CPU.
struct DeviceScheduler::Part {
  DeviceState* device = nullptr;  // null: the CPU
  bool may_fall_back = false;
  std::vector<Job> jobs;
  std::vector<size_t> places;                       // indices of the jobs in the Work
  std::vector<std::unique_ptr<std::byte[]>> rooms;  // contiguous copies of scattered inputs

  void Add(Job job, size_t place) {
    jobs.push_back(std::move(job));
    places.push_back(place);
  }
};

// A Work that runs in several parts, with one Done that gets the first error.
struct DeviceScheduler::Run {
  Run(size_t jobs, size_t parts, std::vector<Executed>* wanted, Done when_done)
      : executed(wanted == nullptr ? 0 : jobs), out(wanted), done(std::move(when_done)), left(parts) {}

  // Records the device and kernel that ran the jobs of `part`. No other part writes these elements.
  void Note(const Part& part, const Backend& backend, Device device, bool fell_back) {
    if (out == nullptr) return;
    for (size_t i = 0; i < part.jobs.size(); ++i) {
      executed[part.places[i]] = {
          .device = device, .kernel = backend.KernelName(*part.jobs[i].plan), .fell_back = fell_back};
    }
  }
  void EndOne(const absl::Status& status) {
    {
      MutexLock lock(mu);
      first_error.Update(status);
      if (--left > 0) return;
    }
    if (out != nullptr) *out = std::move(executed);
    std::move(done)(std::move(first_error));
  }

  std::vector<Executed> executed;  // one per job
  std::vector<Executed>* const out;
  Done done;
  Mutex mu;
  size_t left ABSL_GUARDED_BY(mu);
  absl::Status first_error;  // read without `mu` by the last part to end
};

DeviceScheduler::DeviceScheduler(Backend* cpu) : cpu_(cpu) {}

DeviceScheduler::DeviceScheduler(Backend* cpu, DeviceCost cpu_cost, std::vector<ScheduledDevice> devices, Clock* clock,
                                 SchedulerObserver observer)
    : cpu_(cpu), cpu_cost_(cpu_cost), observer_(std::move(observer)) {
  for (const ScheduledDevice& device : devices) {
    devices_.push_back(std::make_unique<DeviceState>(devices_.size(), device, clock, observer_.queues));
  }
}

DeviceScheduler::~DeviceScheduler() = default;

absl::StatusOr<DeviceScheduler::DeviceState*> DeviceScheduler::FindDevice(const NormPlan& plan, Device asked,
                                                                          const MemorySpace& space) const {
  DeviceState* found = nullptr;
  std::string_view why = devices_.empty() ? "this server has no CUDA backend"
                                          : "no device of this server has the memory or is of the kind";
  for (const auto& device : devices_) {
    if (!space.is_host() && device->info.backend->memory_space() != space) continue;
    if (asked != Device::kAuto && device->info.kind != asked) continue;
    if (device->lost) {
      why = "the device was lost";
    } else if (!CanRun(*device->info.backend, plan)) {
      why = "the device has no kernel for this plan";
    } else if (found == nullptr || device->queued_bytes < found->queued_bytes) {
      found = device.get();
    }
  }
  if (found == nullptr) return DeviceNotAvailableError(why);
  return found;
}

absl::StatusOr<Executed> DeviceScheduler::Choose(const NormPlan& plan, Device device, const MemorySpace& space) const {
  if (space.is_host() && (device == Device::kAuto || device == Device::kCpu)) {
    return Executed{.device = Device::kCpu, .kernel = cpu_->KernelName(plan)};
  }
  NORMD_ASSIGN_OR_RETURN(const DeviceState* const found, FindDevice(plan, device, space));
  return Executed{.device = found->info.kind, .kernel = found->info.backend->KernelName(plan)};
}

bool DeviceScheduler::AcceptsScattered(const NormPlan& plan) const {
  if (!cpu_->AcceptsScattered(plan)) return false;
  return plan.elements <= cpu_->inline_elements() ||
         std::all_of(devices_.begin(), devices_.end(),
                     [&plan](const auto& device) { return device->info.backend->AcceptsScattered(plan); });
}

std::shared_ptr<const PreparedParameters> DeviceScheduler::Prepare(
    std::shared_ptr<const HostParameters> parameters) const {
  if (devices_.empty()) return cpu_->Prepare(std::move(parameters));
  std::vector<std::shared_ptr<const PreparedParameters>> forms;
  forms.reserve(devices_.size());
  for (const auto& device : devices_) forms.push_back(device->info.backend->Prepare(parameters));
  return std::make_shared<Parameters>(std::move(parameters), std::move(forms));
}

bool DeviceScheduler::StaysOnCpu(const Work& work) const {
  for (size_t i = 0; i < work.jobs.size(); ++i) {
    if (NamesDevice(work.jobs[i], AskedFor(work, i))) return false;
  }
  return devices_.empty() || ElementsOf(work.jobs) <= cpu_->inline_elements();
}

DeviceScheduler::DeviceState* DeviceScheduler::CheapestFor(const std::vector<Job>& jobs) const {
  const int64_t bytes = BytesMoved(jobs);
  double least = cpu_cost_.Microseconds(bytes + cpu_queued_bytes_.load(std::memory_order_relaxed));
  DeviceState* cheapest = nullptr;
  for (const auto& device : devices_) {
    const Backend& backend = *device->info.backend;
    const bool takes_all =
        std::all_of(jobs.begin(), jobs.end(), [&backend](const Job& job) { return CanRun(backend, *job.plan); });
    if (device->lost || !takes_all) continue;
    const double cost = device->info.cost.Microseconds(bytes + device->queued_bytes.load(std::memory_order_relaxed));
    if (cost >= least) continue;
    least = cost;
    cheapest = device.get();
  }
  return cheapest;
}

absl::StatusOr<std::vector<DeviceScheduler::Part>> DeviceScheduler::Split(Work* work) const {
  std::vector<Part> parts;
  Part on_cpu, either;
  const bool is_small = ElementsOf(work->jobs) <= cpu_->inline_elements();
  for (size_t i = 0; i < work->jobs.size(); ++i) {
    Job& job = work->jobs[i];
    const Device asked = AskedFor(*work, i);
    if (NamesDevice(job, asked)) {
      NORMD_ASSIGN_OR_RETURN(DeviceState* const device, FindDevice(*job.plan, asked, job.space()));
      const auto same =
          std::find_if(parts.begin(), parts.end(), [&](const Part& part) { return part.device == device; });
      Part& part = same == parts.end() ? parts.emplace_back(Part{.device = device}) : *same;
      part.Add(std::move(job), i);
      continue;
    }
    // A job that replaces its input stays on the CPU, which gives the same bytes without an error: if a device failed,
    // the CPU could not take the job over.
    const bool may_leave =
        asked == Device::kAuto && job.plan->precision == Precision::kExact && !is_small && !ReplacesInput(job);
    (may_leave ? either : on_cpu).Add(std::move(job), i);
  }
  if (!either.jobs.empty()) either.device = CheapestFor(either.jobs);
  if (either.device != nullptr) {
    either.may_fall_back = true;
    parts.push_back(std::move(either));
  } else {
    for (size_t i = 0; i < either.jobs.size(); ++i) on_cpu.Add(std::move(either.jobs[i]), either.places[i]);
  }
  // Last, because the CPU may run its part here and now.
  if (!on_cpu.jobs.empty()) parts.push_back(std::move(on_cpu));
  return parts;
}

std::vector<Executed> DeviceScheduler::AllOnCpu(const std::vector<Job>& jobs) const {
  std::vector<Executed> executed;
  executed.reserve(jobs.size());
  for (const Job& job : jobs) executed.push_back({.device = Device::kCpu, .kernel = cpu_->KernelName(*job.plan)});
  return executed;
}

void DeviceScheduler::Submit(Work work, Done done) {
  if (StaysOnCpu(work)) {
    if (work.executed != nullptr && !devices_.empty()) *work.executed = AllOnCpu(work.jobs);
    return RunOnCpu(std::move(work.jobs), std::move(done));
  }
  const size_t jobs = work.jobs.size();
  absl::StatusOr<std::vector<Part>> parts = Split(&work);
  if (!parts.ok()) return std::move(done)(parts.status());
  const auto run = std::make_shared<Run>(jobs, parts->size(), work.executed, std::move(done));
  for (Part& part : *parts) {
    if (part.device != nullptr) {
      RunOnDevice(std::move(part), run, work.context);
      continue;
    }
    run->Note(part, *cpu_, Device::kCpu, /*fell_back=*/false);
    RunOnCpu(std::move(part.jobs), [run](const absl::Status& status) { run->EndOne(status); });
  }
}

void DeviceScheduler::RunOnCpu(std::vector<Job> jobs, Done done) {
  if (observer_.on_jobs != nullptr) observer_.on_jobs(Device::kCpu, static_cast<int64_t>(jobs.size()));
  if (ElementsOf(jobs) <= cpu_->inline_elements()) return cpu_->Submit(std::move(jobs), std::move(done));
  const int64_t bytes = BytesMoved(jobs);
  cpu_queued_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  cpu_->Submit(std::move(jobs), [this, bytes, done = std::move(done)](absl::Status status) mutable {
    cpu_queued_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    std::move(done)(std::move(status));
  });
}

void DeviceScheduler::RunOnDevice(Part part, const std::shared_ptr<Run>& run, const RequestContext& context) {
  DeviceState& device = *part.device;
  if (observer_.on_jobs != nullptr) observer_.on_jobs(device.info.kind, static_cast<int64_t>(part.jobs.size()));
  part.rooms = MakeContiguous(*device.info.backend, part.jobs);
  for (Job& job : part.jobs) {
    if (job.parameters != nullptr) job.parameters = static_cast<const Parameters*>(job.parameters)->Of(device.index);
  }
  device.queued_bytes.fetch_add(BytesMoved(part.jobs), std::memory_order_relaxed);
  std::vector<Job> sent = part.jobs;
  device.queue.Submit(std::move(sent), context,
                      [this, run, part = std::move(part)](const absl::Status& status) mutable {
                        EndOnDevice(std::move(part), run, status);
                      });
}

void DeviceScheduler::EndOnDevice(Part part, const std::shared_ptr<Run>& run, const absl::Status& status) {
  DeviceState& device = *part.device;
  device.queued_bytes.fetch_sub(BytesMoved(part.jobs), std::memory_order_relaxed);
  const bool is_lost = absl::IsUnavailable(status);
  if (is_lost) MarkLost(device, status);
  if (!part.may_fall_back || !(is_lost || absl::IsResourceExhausted(status))) {
    run->Note(part, *device.info.backend, device.info.kind, /*fell_back=*/false);
    return run->EndOne(status);
  }
  if (observer_.on_fallback != nullptr) observer_.on_fallback(is_lost ? FallbackReason::kLost : FallbackReason::kFull);
  run->Note(part, *cpu_, Device::kCpu, /*fell_back=*/true);
  std::vector<Job> again = part.jobs;
  RunOnCpu(std::move(again), [run, kept = std::move(part)](const absl::Status& second) { run->EndOne(second); });
}

void DeviceScheduler::MarkLost(DeviceState& device, const absl::Status& why) {
  if (device.lost.exchange(true) || observer_.on_lost == nullptr) return;
  observer_.on_lost(device.info.name, why);
}

WaitStats DeviceScheduler::wait_stats() const {
  WaitStats all;
  for (const auto& device : devices_) {
    const WaitStats one = device->queue.wait_stats();
    all.waiting += one.waiting;
    all.oldest = std::max(all.oldest, one.oldest);
  }
  return all;
}

std::string DeviceScheduler::Calibration() const {
  if (devices_.empty()) return "AUTO runs on the CPU";
  std::string text = absl::StrCat("cpu ", CostText(cpu_cost_));
  for (const auto& device : devices_) {
    absl::StrAppend(&text, "; ", device->info.name, " ",
                    device->lost ? "was lost" : CostText(device->info.cost) + " both ways over PCIe");
  }
  return text;
}

}  // namespace normd
