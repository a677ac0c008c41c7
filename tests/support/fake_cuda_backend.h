// A CUDA backend without a device: runs jobs on the CPU, at the places where a kernel would find their tensors, and
// writes down which tensors each job said to lie in its memory. A job whose word is wrong fails the test, or dies.
// Threads: safe from any thread.
#ifndef NORMD_TESTS_SUPPORT_FAKE_CUDA_BACKEND_H_
#define NORMD_TESTS_SUPPORT_FAKE_CUDA_BACKEND_H_

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "tests/support/fake_cuda.h"

namespace normd {

class FakeCudaBackend : public Backend {
 public:
  // Device number `device`, whose memory is that of `cuda`.
  FakeCudaBackend(FakeCuda* cuda, int device, std::unique_ptr<Backend> cpu)
      : cuda_(cuda), device_(device), cpu_(std::move(cpu)) {}

  std::string_view name() const override { return "cuda"; }
  std::string KernelName(const NormPlan& /*plan*/) const override { return "cuda/fake"; }
  bool Supports(const NormPlan& plan) const override { return cpu_->Supports(plan); }
  bool AcceptsScattered(const NormPlan& plan) const override { return cpu_->AcceptsScattered(plan); }
  MemorySpace memory_space() const override { return CudaSpace(device_); }
  std::shared_ptr<const PreparedParameters> Prepare(std::shared_ptr<const HostParameters> parameters) const override {
    return cpu_->Prepare(std::move(parameters));
  }
  void Submit(std::vector<Job> jobs, Done done) override;

  // Of the jobs since the last call of this: "x residual y h, device 1", or "none".
  std::vector<std::string> TakeJobs();

  absl::Status fail_with;  // what becomes of every job, if that is not ok; set while nobody submits

 private:
  FakeCuda* const cuda_;
  const int device_;
  const std::unique_ptr<Backend> cpu_;

  std::mutex mu_;
  std::vector<std::string> jobs_;  // guarded by mu_
};

}  // namespace normd

#endif  // NORMD_TESTS_SUPPORT_FAKE_CUDA_BACKEND_H_
