#include "kernels/cpu/backend.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/errors.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/run.h"
#include "kernels/cpu/targets.h"
#include "kernels/slow_road/formula.h"

namespace normd {
namespace {

// A grain that no work reaches, and that can still be multiplied by the size of an element without overflow.
constexpr int64_t kNoSplit = int64_t{1} << 40;

int Threads(const CpuBackendOptions& options) {
  const auto machine = static_cast<int>(std::thread::hardware_concurrency());
  return options.threads > 0 ? options.threads : std::max(1, machine);
}

absl::Status InCudaMemory() {
  return MakeError(KernelReason("CUDA_NOT_AVAILABLE"),
                   {.field = "device", .value = "the CPU", .limit = "the CUDA device that the tensors lie on"},
                   "is the CPU, which cannot read CUDA memory; it must be the CUDA device that the tensors lie on");
}

// The status of `run()`, which may take scratch of the size of a tensor.
template <typename Function>
absl::Status StatusOfRun(const Function& run) {
  try {
    run();
    return absl::OkStatus();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("the host has no memory left for the scratch of the job");
  }
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuBackendOptions& options) : options_(options), pool_(Threads(options)) {}

  std::string_view name() const override { return "cpu"; }

  std::string KernelName(const NormPlan& plan) const override {
    const bool rows = plan.pattern == Pattern::kRows;
    std::string kernel = "cpu/";
    kernel += ActiveCpuTargetName();
    if (plan.exact_sums) return kernel + "/exact_sums";
    return kernel + (plan.power_groups > 0 ? "/power" : rows ? "/rows" : "/columns");
  }

  bool Supports(const NormPlan& /*plan*/) const override { return true; }

  int64_t inline_elements() const override { return options_.inline_elements; }

  bool AcceptsScattered(const NormPlan& plan) const override { return cpu::AcceptsScattered(plan); }

  std::shared_ptr<const PreparedParameters> Prepare(std::shared_ptr<const HostParameters> parameters) const override {
    return std::make_shared<PreparedParameters>(std::move(parameters));
  }

  void Submit(std::vector<Job> jobs, Done done) override {
    int64_t work = 0;
    for (const Job& job : jobs) {
      work += job.plan->Work();
      // The scheduler sends no such job to the CPU while the device is there. When the device is lost, a device address
      // must not crash the process.
      if (!job.on_host()) return std::move(done)(InCudaMemory());
    }
    if (work <= options_.inline_elements) {
      // On this thread alone, because waking another thread costs as much as the work.
      std::move(done)(StatusOfRun([&] {
        for (const Job& job : jobs) cpu::RunJob(job, pool_, kNoSplit, options_);
      }));
      return;
    }
    const int64_t helpers = work / std::max<int64_t>(1, options_.grain_elements);
    auto run = [this, jobs = std::move(jobs), done = std::move(done)]() mutable {
      std::move(done)(StatusOfRun([&] {
        pool_.ParallelFor(static_cast<int64_t>(jobs.size()), 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            cpu::RunJob(jobs[static_cast<size_t>(i)], pool_, options_.grain_elements, options_);
          }
        });
      }));
    };
    pool_.Enqueue(std::move(run), helpers);
  }

 private:
  const CpuBackendOptions options_;
  cpu::WorkerPool pool_;
};

}  // namespace

bool GivesNearest(const NormPlan& plan, std::optional<DType> kept_wide) {
  if (plan.precision != Precision::kExact) return false;
  if (plan.statistic != Statistic::kPowerSum) return true;
  const bool is_f64 = plan.dtype == DType::kF64 || kept_wide == DType::kF64;
  return plan.p == std::floor(plan.p) && plan.p <= slow_road::LargestWholeOrder(is_f64, kept_wide.has_value());
}

bool GivesNearest(const Job& job) {
  const bool keeps = job.residual.present() && job.residual_rounding == ResidualRounding::kKeepWide;
  return GivesNearest(*job.plan, keeps ? std::optional(job.residual.dtype) : std::nullopt);
}

std::unique_ptr<Backend> MakeCpuBackend(const CpuBackendOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

}  // namespace normd
