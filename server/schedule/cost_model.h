// The time that a device takes for a job list, measured on the device itself: a fixed time plus a time per byte.
// In the path: measured once at start, read by DeviceScheduler for every list that may run on any device.
// Measurements go through host memory, so a GPU's rate is the rate of PCIe both ways, which host tensors pay, too.
// Threads: plain values.
#ifndef NORMD_SERVER_SCHEDULE_COST_MODEL_H_
#define NORMD_SERVER_SCHEDULE_COST_MODEL_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "server/base/clock.h"

namespace normd {

struct DeviceCost {
  double fixed_us = 0;
  double bytes_per_us = 1;  // read and written

  double Microseconds(int64_t bytes) const { return fixed_us + static_cast<double>(bytes) / bytes_per_us; }
};

// "2.1 us + 14.2 GB/s"
std::string CostText(const DeviceCost& cost);

// Times RMSNorm on rows of two sizes on `backend`, with `clock`, and takes the best run of each size. Each size runs
// for half of `budget`, at least once, after a first run that is not counted. Waits for the results; the backend must
// be idle. A run is not cut off when the budget is spent, so a first run that loads kernels may take longer. Errors are
// those of Submit. REQUIRES: budget > 0.
absl::StatusOr<DeviceCost> MeasureCost(Backend& backend, Clock& clock, absl::Duration budget = absl::Milliseconds(20));

}  // namespace normd

#endif  // NORMD_SERVER_SCHEDULE_COST_MODEL_H_
