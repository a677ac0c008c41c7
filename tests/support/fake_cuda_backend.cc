#include "tests/support/fake_cuda_backend.h"

#include <gtest/gtest.h>

namespace normd {
namespace {

std::string TextOf(const CudaTensors& tensors) {
  if (!tensors.any()) return "none";
  std::string text;
  const std::pair<bool, const char*> all[] = {
      {tensors.x, "x"}, {tensors.residual, "residual"}, {tensors.y, "y"}, {tensors.h, "h"}};
  for (const auto& [lies_there, name] : all) {
    if (lies_there) text += (text.empty() ? "" : " ") + std::string(name);
  }
  return text + ", device " + std::to_string(tensors.device);
}

}  // namespace

void FakeCudaBackend::Submit(std::vector<Job> jobs, Done done) {
  // What the host has must not be the device's, and the other way round.
  const auto find = [this](bool in_cuda, auto* address, const char* what) {
    std::byte* const found = cuda_->OnDevice(address);
    EXPECT_EQ(found != nullptr, in_cuda) << what;
    return in_cuda ? static_cast<decltype(address)>(found) : address;
  };
  for (Job& job : jobs) {
    {
      const std::lock_guard<std::mutex> lock(mu_);
      jobs_.push_back(TextOf(job.in_cuda));
    }
    job.x = find(job.in_cuda.x, job.x, "x");
    EXPECT_EQ(job.residual.in_cuda(), job.in_cuda.residual);
    job.residual.data = find(job.in_cuda.residual, job.residual.data, "residual");
    job.y = find(job.in_cuda.y, job.y, "y");
    job.h = find(job.in_cuda.h, job.h, "h");
    job.in_cuda = {};
  }
  cpu_->Submit(std::move(jobs), std::move(done));
}

std::vector<std::string> FakeCudaBackend::TakeJobs() {
  const std::lock_guard<std::mutex> lock(mu_);
  return std::exchange(jobs_, {});
}

}  // namespace normd
