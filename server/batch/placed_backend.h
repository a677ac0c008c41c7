// A Backend that chooses, for each job, the CPU or a device.
// In the path: the engine's backend; below it the CPU's and, behind a BatchingBackend, CUDA's. The engine sees one.
// EXACT has the same bytes everywhere, so AUTO takes what costs least now: DeviceCost and the bytes queued there. FAST
// does not promise them, so AUTO decides by method, shape and dtype alone: never by load, calibration or what else is
// in the list; a batch has the bytes of single calls. The one exception is a lost or full device: the CPU then runs
// what was the device's, and Executed::fell_back and the counters say so. Lists that are small enough to run inline
// stay on the CPU, unless the device is asked for by name. Ownership: owns both. Destruction waits for everything
// submitted. Threads: safe from any thread.
#ifndef NORMD_SERVER_BATCH_PLACED_BACKEND_H_
#define NORMD_SERVER_BATCH_PLACED_BACKEND_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "server/batch/cost_model.h"

namespace normd {

struct PlacementOptions {
  DeviceCost cpu, device;
  std::string device_name = "cuda";
  // FAST goes to the device from this many bytes of x on: below, the CPU is done before PCIe is. A constant, and not
  // measured, so that the bits of a result do not depend on the machine's day.
  int64_t fast_device_bytes = int64_t{4} << 20;
};

// Why the CPU ran what was the device's.
enum class FallbackReason : uint8_t { kLost, kFull };

// Empty functions are not called. They run on any thread, several at a time, and must not block.
struct PlacementObserver {
  std::function<void(Device device, int64_t jobs)> on_jobs;
  std::function<void(FallbackReason reason)> on_fallback;  // one job list
  std::function<void(const absl::Status& why)> on_lost;    // once
};

class PlacedBackend final : public Backend {
 public:
  // `device` may be null: everything runs on the CPU.
  PlacedBackend(std::unique_ptr<Backend> cpu, std::unique_ptr<Backend> device, PlacementOptions options,
                PlacementObserver observer = {});

  std::string_view name() const override { return device_ == nullptr ? cpu_->name() : "placed"; }
  // Of the device that AUTO takes where that is decided before, else of the CPU.
  std::string KernelName(const NormPlan& plan) const override;
  bool Supports(const NormPlan& plan) const override { return cpu_->Supports(plan); }
  // Also FAILED_PRECONDITION where the device was lost, or has no kernel for the plan.
  absl::StatusOr<Executed> Choose(const NormPlan& plan, Device device) const override;
  bool TakesSegments(const NormPlan& plan) const override;
  // The CPU's, of lists in which no job asks for the device: those may be queued whatever their size.
  int64_t inline_elements() const override { return cpu_->inline_elements(); }
  // A layer that serves both. The device takes layers of the CPU's, too: where it cannot prepare one, the CPU does.
  absl::StatusOr<std::shared_ptr<const Layer>> Prepare(const ParameterViews& parameters,
                                                       double weight_offset) const override;

  // UNAVAILABLE from the device means that it is lost, for good. That work, and what is RESOURCE_EXHAUSTED, run on the
  // CPU instead; but the error is the caller's where jobs asked for the device by name, lie in its memory, or may have
  // written over their inputs.
  void Submit(std::vector<Job> jobs, Done done) override;

  // How AUTO places work, for people: "cpu 2.1 us + 14.2 GB/s; cuda:0 35.0 us + 21.0 GB/s both ways; ...".
  std::string Calibration() const;
  bool lost() const { return lost_.load(std::memory_order_acquire); }

 private:
  enum class Place : uint8_t { kCpu, kCpuForLostDevice, kDevice, kDeviceAlone, kEither };
  struct Parts {
    std::vector<Job> cpu;
    std::vector<Job> device;
    std::vector<Job> device_alone;  // which the CPU cannot take over
    bool fell_back = false;
  };
  struct OnDevice;  // what is kept of a list there

  Place PlaceOf(const Job& job, bool is_small) const;
  // Whether there is nothing to choose: what most calls are, and small ones should not pay for.
  bool StaysOnCpu(const std::vector<Job>& jobs) const;
  // FAST's rule.
  bool FastIsForDevice(const NormPlan& plan) const;
  absl::Status WhyNotOnDevice(const NormPlan& plan) const;
  bool DeviceIsCheaper(int64_t bytes) const;

  // Each job in its part, its Executed filled in; an error if one asks for a device that cannot be had.
  absl::StatusOr<Parts> Split(std::vector<Job> jobs) const;
  void RunOnCpu(std::vector<Job> jobs, Done done);
  void RunOnDevice(std::vector<Job> jobs, bool may_fall_back, Done done);
  void EndOnDevice(OnDevice ran, absl::Status status, Done done);
  void MarkLost(const absl::Status& why);

  // Constant after construction.
  const PlacementOptions options_;
  const PlacementObserver observer_;

  std::atomic<bool> lost_{false};
  std::atomic<int64_t> cpu_queued_bytes_{0};
  std::atomic<int64_t> device_queued_bytes_{0};

  // The device goes first: what it gives up runs on the CPU.
  const std::unique_ptr<Backend> cpu_;
  const std::unique_ptr<Backend> device_;
};

}  // namespace normd

#endif  // NORMD_SERVER_BATCH_PLACED_BACKEND_H_
