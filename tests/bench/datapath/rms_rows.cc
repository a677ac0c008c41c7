#include "tests/bench/datapath/rms_rows.h"

#include <latch>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/cpu/backend.h"
#include "kernels/plan.h"
#include "tests/bench/machine.h"

namespace normd::bench {

RmsRows::RmsRows() : backend_(MakeCpuBackend({})) {}

void RmsRows::Submit(const void* x, int64_t bytes, void* y, Backend::Done done) {
  if (bytes % kRowBytes != 0) return done(absl::InvalidArgumentError("x: not whole rows"));
  absl::StatusOr<NormPlan> made =
      MakePlan({.attributes = RmsNormSpec()}, DType::kF32, {bytes / kRowBytes, kRowElements}, {});
  if (!made.ok()) return done(made.status());
  auto plan = std::make_unique<NormPlan>(*std::move(made));
  Job job;
  job.plan = plan.get();
  job.x = x;
  job.y = y;
  backend_->Submit({job}, [plan = std::move(plan), done = std::move(done)](absl::Status status) mutable {
    done(std::move(status));
  });
}

absl::Status RmsRows::Run(const void* x, int64_t bytes, void* y) {
  absl::Status result;
  std::latch done(1);
  Submit(x, bytes, y, [&](absl::Status status) {
    result = std::move(status);
    done.count_down();
  });
  done.wait();
  return result;
}

absl::StatusOr<absl::Duration> RmsRows::TimeOfOne(const void* x, int64_t bytes, void* y, absl::Duration duration) {
  const absl::Time begin = SteadyNow();
  absl::Time now = begin;
  int64_t runs = 0;
  do {
    NORMD_RETURN_IF_ERROR(Run(x, bytes, y));
    ++runs;
    now = SteadyNow();
  } while (now < begin + duration);
  return (now - begin) / runs;
}

}  // namespace normd::bench
