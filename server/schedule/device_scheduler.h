// Chooses, for each job, the CPU or one of the devices, and queues for the devices.
// In the path: the engine hands it a Work; below it are the CPU's backend and, each behind a DeviceQueue, the devices'.
// A job whose tensors lie in a device's memory goes to that device, and one that names CUDA to the device that has the
// least to do. AUTO decides about host tensors: EXACT has the same bytes everywhere, so it goes where it costs least
// now, by DeviceCost and the bytes queued there. FAST does not promise the same bytes, so AUTO does not move it: it
// stays on the CPU, which reads and writes each tensor less often than staging it for a device does. Work that is small
// enough to run inline stays on the CPU, too.
// When a device is lost, or has no room, the CPU runs what AUTO had sent there; Executed::fell_back and the counters
// say so.
// Ownership: borrows the backends and the clock, which must outlive it. REQUIRES: every Work is done before
// destruction. Threads: safe from any thread.
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
  Device kind = Device::kCuda;  // how callers name it
  Backend* backend = nullptr;   // its memory_space() says whose tensors it takes
  DeviceCost cost = {};
  QueueOptions queue = {};
};

// Why the CPU ran what was a device's.
enum class FallbackReason : uint8_t { kLost, kFull };

// Empty functions are not called. They run on any thread, several at a time, and must not block.
struct SchedulerObserver {
  std::function<void(Device device, int64_t jobs)> on_jobs;
  std::function<void(FallbackReason reason)> on_fallback;                           // one list of jobs
  std::function<void(const std::string& device, const absl::Status& why)> on_lost;  // once a device
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

  bool Supports(const NormPlan& plan) const { return cpu_->Supports(plan); }
  // What will run a job of `plan` whose tensors lie in `space` and that may run on `device`, as far as can be said
  // before; FAILED_PRECONDITION (DeviceNotAvailableError) where nothing will.
  absl::StatusOr<Executed> Choose(const NormPlan& plan, Device device, const MemorySpace& space = {}) const;
  // Whether a job of `plan`, without residual, may come with its x scattered; else it needs an x_buffer.
  bool AcceptsScattered(const NormPlan& plan) const;
  // Work of at most so many elements, in which no job must run on a device, is done before Submit returns.
  int64_t inline_elements() const { return cpu_->inline_elements(); }
  // The parameters for every device.
  std::shared_ptr<const PreparedParameters> Prepare(std::shared_ptr<const HostParameters> parameters) const;

  // Runs all jobs, then `done` once. Errors are the backends'; FAILED_PRECONDITION, before anything runs, where a job
  // must run on a device that cannot be had. UNAVAILABLE from a device means that it is lost, for good. A job that must
  // run there, or that may have written over its input, has the device's error; every other one runs on the CPU.
  void Submit(Work work, Done done);

  // How AUTO places work, for people: "cpu 2.1 us + 14.2 GB/s; cuda:0 35.0 us + 21.0 GB/s both ways over PCIe".
  std::string Calibration() const;

 private:
  class Parameters;
  struct DeviceState;
  struct Run;
  struct Part;

  // The device for a job that must run on one: of the kind that was `asked` for, with the memory `space`; of several
  // the one that had the least to do before this Work.
  absl::StatusOr<DeviceState*> FindDevice(const NormPlan& plan, Device asked, const MemorySpace& space) const;
  // Where AUTO sends `jobs`, which may run anywhere: where that costs least now. Null: to the CPU.
  DeviceState* CheapestFor(const std::vector<Job>& jobs) const;
  bool StaysOnCpu(const Work& work) const;

  // Each job in its part; an error if one must run on a device that cannot be had.
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
