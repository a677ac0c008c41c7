#include "kernels/cpu/backend.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/run.h"
#include "kernels/cpu/targets.h"
#include "kernels/errors.h"

namespace normd {
namespace {

// A grain that nothing reaches, and that may still be multiplied by an element's size.
constexpr int64_t kNoSplit = int64_t{1} << 40;

int Threads(const CpuBackendOptions& options) {
  const auto machine = static_cast<int>(std::thread::hardware_concurrency());
  return options.threads > 0 ? options.threads : std::max(1, machine);
}

// The values in the order in which `order` takes them. REQUIRES: it has as many elements, at least one.
std::vector<double> Reorder(const std::vector<double>& values, const ParameterOrder& order) {
  const size_t inner = order.extents.size() - 1;
  std::vector<double> ordered;
  ordered.reserve(values.size());
  Shape index(inner, 0);  // of the outer axes
  int64_t first = 0;
  while (ordered.size() < values.size()) {
    for (int64_t i = 0; i < order.extents[inner]; ++i) {
      ordered.push_back(values[static_cast<size_t>(first + i * order.strides[inner])]);
    }
    for (size_t axis = inner; axis-- > 0;) {
      first += order.strides[axis];
      if (++index[axis] < order.extents[axis]) break;
      first -= index[axis] * order.strides[axis];
      index[axis] = 0;
    }
  }
  return ordered;
}

std::vector<double> Widen(const TensorView& view, const ParameterOrder& order) {
  std::vector<double> values(static_cast<size_t>(view.present() ? ElementCount(view.shape) : 0));
  cpu::ConvertToF64({view.dtype, view.data, nullptr}, static_cast<int64_t>(values.size()), values.data());
  return order.empty() || values.empty() ? values : Reorder(values, order);
}

absl::Status InCudaMemory() {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {.field = "device",
                    .value = "the CPU",
                    .limit = "the CUDA device that the tensors lie on",
                    .reason = "CUDA_NOT_AVAILABLE"},
                   "cannot read CUDA memory");
}

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuBackendOptions& options) : options_(options), pool_(Threads(options)) {}

  std::string_view name() const override { return "cpu"; }

  std::string KernelName(const NormPlan& plan) const override {
    const bool rows = plan.pattern == Pattern::kRows;
    std::string kernel = "cpu/";
    kernel += ActiveCpuTargetName();
    return kernel + (plan.power_groups > 0 ? "/power" : rows ? "/rows" : "/columns");
  }

  bool Supports(const NormPlan& /*plan*/) const override { return true; }

  int64_t inline_elements() const override { return options_.inline_elements; }

  bool TakesSegments(const NormPlan& plan) const override { return cpu::TakesSegments(plan); }

  absl::StatusOr<std::shared_ptr<const Layer>> Prepare(const ParameterViews& parameters,
                                                       double weight_offset) const override {
    auto layer = std::make_shared<Layer>();
    layer->weight = Widen(parameters.weight, parameters.order);
    layer->bias = Widen(parameters.bias, parameters.order);
    for (double& w : layer->weight) w += weight_offset;
    layer->weight32.assign(layer->weight.begin(), layer->weight.end());
    layer->bias32.assign(layer->bias.begin(), layer->bias.end());
    const auto fits = [](double value) { return value == 0 || std::isnormal(static_cast<float>(value)); };
    layer->fit_f32 = std::all_of(layer->weight.begin(), layer->weight.end(), fits) &&
                     std::all_of(layer->bias.begin(), layer->bias.end(), fits);
    layer->equal_f32 = std::equal(layer->weight.begin(), layer->weight.end(), layer->weight32.begin()) &&
                       std::equal(layer->bias.begin(), layer->bias.end(), layer->bias32.begin());
    return layer;
  }

  void Submit(std::vector<Job> jobs, Done done) override {
    int64_t work = 0;
    for (const Job& job : jobs) {
      work += job.plan->Work();
      // Nobody sends one here while there is a device; when it is lost, its addresses must not take the process along.
      if (job.in_cuda.any()) return std::move(done)(InCudaMemory());
    }
    if (work <= options_.inline_elements) {
      // On this thread alone: waking another one costs as much as the work.
      for (const Job& job : jobs) cpu::RunJob(job, pool_, kNoSplit, options_.stream_bytes);
      std::move(done)(absl::OkStatus());
      return;
    }
    pool_.Enqueue([this, jobs = std::move(jobs), done = std::move(done)]() mutable {
      pool_.ParallelFor(static_cast<int64_t>(jobs.size()), 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          cpu::RunJob(jobs[static_cast<size_t>(i)], pool_, options_.grain_elements, options_.stream_bytes);
        }
      });
      std::move(done)(absl::OkStatus());
    });
  }

 private:
  const CpuBackendOptions options_;
  cpu::WorkerPool pool_;
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend(const CpuBackendOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

}  // namespace normd
