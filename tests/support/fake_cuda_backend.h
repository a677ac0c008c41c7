// A CUDA backend without a device: runs jobs on the CPU, at the places where a kernel would find their tensors, and
// writes down which tensors each job said to lie in CUDA memory. A job whose word is wrong fails the test, or dies.
// Threads: safe from any thread.
#ifndef NORMD_TESTS_SUPPORT_FAKE_CUDA_BACKEND_H_
#define NORMD_TESTS_SUPPORT_FAKE_CUDA_BACKEND_H_

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "tests/support/fake_cuda.h"

namespace normd {

class FakeCudaBackend : public Backend {
 public:
  FakeCudaBackend(FakeCuda* cuda, std::unique_ptr<Backend> cpu) : cuda_(cuda), cpu_(std::move(cpu)) {}

  std::string_view name() const override { return "cuda"; }
  std::string KernelName(const NormPlan& plan) const override { return cpu_->KernelName(plan); }
  bool Supports(const NormPlan& plan) const override { return cpu_->Supports(plan); }
  bool TakesSegments(const NormPlan& plan) const override { return cpu_->TakesSegments(plan); }
  int64_t inline_elements() const override { return cpu_->inline_elements(); }
  absl::StatusOr<std::shared_ptr<const Layer>> Prepare(const ParameterViews& p, double offset) const override {
    return cpu_->Prepare(p, offset);
  }
  absl::StatusOr<Executed> Choose(const NormPlan& plan, Device device) const override {
    return Executed{.device = device == Device::kCuda ? Device::kCuda : Device::kCpu, .kernel = KernelName(plan)};
  }
  void Submit(std::vector<Job> jobs, Done done) override;

  // Of the jobs since the last call of this: "x residual y h, device 1", or "none".
  std::vector<std::string> TakeJobs();

 private:
  FakeCuda* const cuda_;
  const std::unique_ptr<Backend> cpu_;

  std::mutex mu_;
  std::vector<std::string> jobs_;  // guarded by mu_
};

}  // namespace normd

#endif  // NORMD_TESTS_SUPPORT_FAKE_CUDA_BACKEND_H_
