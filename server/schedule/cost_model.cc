#include "server/schedule/cost_model.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "server/base/mutex.h"

namespace normd {
namespace {

constexpr int64_t kRowElements = 1024;
// 16 KiB, which take the fixed time alone, and 4 MiB, which exceed the caches: a few hundred microseconds each way.
constexpr int64_t kSmallRows = 4;
constexpr int64_t kLargeRows = 1024;

absl::StatusOr<NormPlan> PlanOf(int64_t rows) {
  return MakePlan({.attributes = RmsNormSpec()}, DType::kF32, {rows, kRowElements}, {});
}

absl::Status RunAndWait(Backend& backend, const Job& job) {
  Mutex mu;
  CondVar done;
  absl::Status result;
  bool is_done = false;
  backend.Submit({job}, [&](absl::Status status) {
    MutexLock lock(mu);
    result = std::move(status);
    is_done = true;
    done.Signal();
  });
  MutexLock lock(mu);
  while (!is_done) done.Wait(mu);
  return result;
}

struct Timed {
  double bytes = 0;
  double best_us = 0;
};

absl::StatusOr<Timed> TimeRows(Backend& backend, Clock& clock, int64_t rows, absl::Duration budget) {
  NORMD_ASSIGN_OR_RETURN(const NormPlan plan, PlanOf(rows));
  const std::vector<float> x(static_cast<size_t>(plan.elements), 1.0F);
  std::vector<float> y(x.size());
  Job job;
  job.plan = &plan;
  job.x = x.data();
  job.y = y.data();
  NORMD_RETURN_IF_ERROR(RunAndWait(backend, job));
  absl::Duration best = absl::InfiniteDuration();
  for (absl::Duration spent; spent < budget;) {
    const absl::Time start = clock.Now();
    NORMD_RETURN_IF_ERROR(RunAndWait(backend, job));
    // At least a little, so that a clock that is set back during the measurement cannot prolong it for ever.
    const absl::Duration took = std::max(clock.Now() - start, absl::Nanoseconds(100));
    best = std::min(best, took);
    spent += took;
  }
  return Timed{.bytes = static_cast<double>(2 * plan.elements * SizeOf(plan.dtype)),
               .best_us = absl::ToDoubleMicroseconds(best)};
}

}  // namespace

std::string CostText(const DeviceCost& cost) {
  return absl::StrFormat("%.1f us + %.1f GB/s", cost.fixed_us, cost.bytes_per_us / 1000);
}

absl::StatusOr<DeviceCost> MeasureCost(Backend& backend, Clock& clock, absl::Duration budget) {
  NORMD_ASSIGN_OR_RETURN(const Timed small, TimeRows(backend, clock, kSmallRows, budget / 2));
  NORMD_ASSIGN_OR_RETURN(const Timed large, TimeRows(backend, clock, kLargeRows, budget / 2));
  DeviceCost cost;
  cost.bytes_per_us = large.best_us > small.best_us ? (large.bytes - small.bytes) / (large.best_us - small.best_us)
                                                    : large.bytes / large.best_us;
  cost.fixed_us = std::max(0.0, small.best_us - small.bytes / cost.bytes_per_us);
  return cost;
}

}  // namespace normd
