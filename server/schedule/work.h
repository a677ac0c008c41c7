// What the engine hands to the device scheduler: jobs, where they may run, and who waits for them.
// Results do not depend on any of it, but for the device that a caller names.
// Ownership: a Work borrows what its jobs and its context point to; all of it must live until Done has run.
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

// What ran a job, or will.
struct Executed {
  Device device = Device::kCpu;
  std::string kernel;      // as Backend::KernelName
  bool fell_back = false;  // another device was chosen, and was lost or full
};

// Who asks, until when, and whether nobody does any more.
struct RequestContext {
  uint64_t caller = 0;                               // work of one caller starts in order, callers take turns
  absl::Time deadline = absl::InfiniteFuture();      // by the scheduler's clock
  const std::function<bool()>* cancelled = nullptr;  // null: never
};

struct Work {
  std::vector<Job> jobs;
  std::vector<Device> devices;  // where each job may run, in their order; empty: AUTO for all
  RequestContext context;
  // Null: not wanted. Else, written before Done, what ran each job, in order; left empty where there is no device but
  // the CPU.
  std::vector<Executed>* executed = nullptr;
};

}  // namespace normd

#endif  // NORMD_SERVER_SCHEDULE_WORK_H_
