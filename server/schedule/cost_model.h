// What a device takes for a job list, measured on the device itself: a fixed time and a time for each byte.
// In the path: measured once at start, read by DeviceScheduler for every list that may run on any device.
// Measurements go through host memory, so a GPU's rate is that of PCIe both ways: what host tensors pay.
// Plain values.
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

// Times RMSNorm of rows of two sizes on `backend`, by `clock`, each for half of `budget` and at least once after a
// first run that is not counted, and takes the best. Waits for the results; the backend must be idle. What is submitted
// is not cut off when the budget is spent, so that a first run that loads kernels may take longer. Errors are those of
// Submit.
absl::StatusOr<DeviceCost> MeasureCost(Backend& backend, Clock& clock, absl::Duration budget = absl::Milliseconds(20));

}  // namespace normd

#endif  // NORMD_SERVER_SCHEDULE_COST_MODEL_H_
