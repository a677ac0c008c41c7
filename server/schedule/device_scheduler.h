// Chooses the CPU or a device for each job, and queues for the devices.
// In the path: the engine hands it a Work; below it are the CPU's backend and, each behind a DeviceQueue, the devices'
// backends.
// Choice: a job whose tensors lie in a device's memory runs on that device; a job that asks for CUDA runs on the CUDA
// device with the least queued bytes. AUTO decides about host tensors. EXACT has the same bytes everywhere, so an EXACT
// job goes where it costs least now, by DeviceCost and the bytes queued there. FAST does not promise the same bytes, so
// AUTO leaves a FAST job on the CPU, which reads and writes each tensor less often than staging it for a device does.
// Work that is small enough to run inline also stays on the CPU.
// Fallback: when a device is lost or has no room, the CPU runs the work that AUTO had sent there; Executed::fell_back
// and the counters say so.
// Ownership: borrows the backends and the clock, which must outlive it. REQUIRES: every Work is done before
// destruction.
// Threads: safe from any thread.
#ifndef NORMD_SERVER_SCHEDULE_DEVICE_SCHEDULER_H_
#define NORMD_SERVER_SCHEDULE_DEVICE_SCHEDULER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "server/base/clock.h"
#include "server/schedule/cost_model.h"
#include "server/schedule/device_queue.h"
#include "server/schedule/work.h"

namespace normd {

// A device besides the CPU.
struct ScheduledDevice {
  std::string name = "cuda:0";  // for people
  Device kind = Device::kCuda;  // the Device that callers ask for
  Backend* backend = nullptr;   // its memory_space() says which tensors must run here
  DeviceCost cost = {};
  QueueOptions queue = {};
};

// Why the CPU ran jobs that AUTO had sent to a device.
enum class FallbackReason : uint8_t { kLost, kFull };

// Null functions are not called. They run on any thread, several at a time, and must not block.
struct SchedulerObserver {
  std::function<void(Device device, int64_t jobs)> on_jobs;
  std::function<void(FallbackReason reason)> on_fallback;                           // once per job list
  std::function<void(const std::string& device, const absl::Status& why)> on_lost;  // once per device
  QueueObserver queues;
};

class DeviceScheduler {
 public:
  using Done = Backend::Done;

  // Everything runs on `cpu`.
  explicit DeviceScheduler(Backend* cpu);
  DeviceScheduler(Backend* cpu, DeviceCost cpu_cost, std::vector<ScheduledDevice> devices, Clock* clock,
                  SchedulerObserver observer = {});
  ~DeviceScheduler();

  // Whether the CPU can run `plan`; devices may support fewer plans.
  bool Supports(const NormPlan& plan) const { return cpu_->Supports(plan); }
  // What will run a job of `plan` whose tensors lie in `space` and whose caller asks for `device`, as far as this is
  // known before submission: for host tensors under AUTO, the CPU. FAILED_PRECONDITION (DeviceNotAvailableError) if
  // nothing will.
  absl::StatusOr<Executed> Choose(const NormPlan& plan, Device device, const MemorySpace& space = {}) const;
  // Whether a job of `plan`, without residual, may have a scattered x; otherwise it needs an x_buffer.
  bool AcceptsScattered(const NormPlan& plan) const;
  // Work of at most this many elements, in which no job must run on a device, is done before Submit returns.
  int64_t inline_elements() const { return cpu_->inline_elements(); }
  // Prepares the parameters for the CPU and every device.
  std::shared_ptr<const PreparedParameters> Prepare(std::shared_ptr<const HostParameters> parameters) const;

  // Runs all jobs, then `done` once. Errors are the backends'. FAILED_PRECONDITION, before anything runs, if a job must
  // run on a device that is not available. After UNAVAILABLE (the device is lost for good) or RESOURCE_EXHAUSTED from a
  // device, a job that must run there gets the error, and every other job runs on the CPU.
  void Submit(Work work, Done done);

  // The submissions that wait for a device now, of all devices.
  WaitStats wait_stats() const;

  // How AUTO places work, for people: "cpu 2.1 us + 14.2 GB/s; cuda:0 35.0 us + 21.0 GB/s both ways over PCIe".
  std::string Calibration() const;

 private:
  class Parameters;
  struct DeviceState;
  struct Run;
  struct Part;

  // The device for a job that must run on one: of kind `asked` and with the memory `space` (AUTO and the host's mean
  // any). Of several devices, the one with the fewest queued bytes before this Work.
  absl::StatusOr<DeviceState*> FindDevice(const NormPlan& plan, Device asked, const MemorySpace& space) const;
  // The device to which AUTO sends `jobs`, which may run anywhere, because they cost least there now; null: the CPU.
  DeviceState* CheapestFor(const std::vector<Job>& jobs) const;
  bool StaysOnCpu(const Work& work) const;

  // Groups the jobs by where they run; an error if a job must run on a device that is not available.
  absl::StatusOr<std::vector<Part>> Split(Work* work) const;
  std::vector<Executed> AllOnCpu(const std::vector<Job>& jobs) const;
  void RunOnCpu(std::vector<Job> jobs, Done done);
  void RunOnDevice(Part part, const std::shared_ptr<Run>& run, const RequestContext& context);
  void EndOnDevice(Part part, const std::shared_ptr<Run>& run, const absl::Status& status);
  void MarkLost(DeviceState& device, const absl::Status& why);

  // Constant after construction.
  Backend* const cpu_;
  const DeviceCost cpu_cost_;
  const SchedulerObserver observer_;

  std::atomic<int64_t> cpu_queued_bytes_{0};
  std::vector<std::unique_ptr<DeviceState>> devices_;  // the list itself is constant
};

}  // namespace normd

#endif  // NORMD_SERVER_SCHEDULE_DEVICE_SCHEDULER_H_
