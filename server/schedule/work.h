// What the engine hands to the device scheduler: jobs, where they may run, and the request that waits for them.
// Results do not depend on any of these, except for the device that a caller asks for.
// Ownership: a Work borrows the objects that its jobs and its context point to; all of that must live until Done has
// run.
// Threads: plain values.
#ifndef NORMD_SERVER_SCHEDULE_WORK_H_
#define NORMD_SERVER_SCHEDULE_WORK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kernels/backend.h"

namespace normd {

enum class Device : uint8_t { kAuto = 1, kCpu = 2, kCuda = 3 };  // the wire's numbers

// What ran a job, or will run it.
struct Executed {
  Device device = Device::kCpu;
  std::string kernel;      // as Backend::KernelName
  bool fell_back = false;  // AUTO chose a device that was lost or full
};

// Who asks, until when, and whether the caller has cancelled.
struct RequestContext {
  uint64_t caller = 0;                               // fair-queueing key: callers take turns, each in its own order
  absl::Time deadline = absl::InfiniteFuture();      // by the scheduler's clock
  const std::function<bool()>* cancelled = nullptr;  // null: never
};

struct Work {
  std::vector<Job> jobs;
  std::vector<Device> devices;  // where each job may run, in the order of `jobs`; empty: AUTO for all
  RequestContext context;
  // Null: not wanted. Otherwise set before Done to the device and kernel that ran each job, in order; left empty if
  // there is only the CPU.
  std::vector<Executed>* executed = nullptr;
};

}  // namespace normd

#endif  // NORMD_SERVER_SCHEDULE_WORK_H_
