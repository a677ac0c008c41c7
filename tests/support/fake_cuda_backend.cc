#include "tests/support/fake_cuda_backend.h"

#include <gtest/gtest.h>

namespace normd {
namespace {

std::string TextOf(const Job& job) {
  if (job.on_host()) return "none";
  const std::pair<MemorySpace, const char*> all[] = {
      {job.x_space, "x"}, {job.residual.space, "residual"}, {job.y_space, "y"}, {job.h_space, "h"}};
  std::string text;
  int device = 0;
  for (const auto& [space, name] : all) {
    if (space.is_host()) continue;
    text += (text.empty() ? "" : " ") + std::string(name);
    device = space.index;
  }
  return text + ", device " + std::to_string(device);
}

}  // namespace

void FakeCudaBackend::Submit(std::vector<Job> jobs, Done done) {
  // What the host has must not be the device's, and the other way round.
  const auto find = [this](const MemorySpace& space, auto* address, const char* what) {
    EXPECT_TRUE(space.is_host() || space == memory_space()) << what << " lies in the memory of another device";
    std::byte* const found = cuda_->OnDevice(address);
    EXPECT_EQ(found != nullptr, !space.is_host()) << what;
    return space.is_host() ? address : static_cast<decltype(address)>(found);
  };
  for (Job& job : jobs) {
    {
      const std::lock_guard<std::mutex> lock(mu_);
      jobs_.push_back(TextOf(job));
    }
    job.x = find(job.x_space, job.x, "x");
    job.residual.data = find(job.residual.space, job.residual.data, "residual");
    job.y = find(job.y_space, job.y, "y");
    job.h = find(job.h_space, job.h, "h");
    job.x_space = job.residual.space = job.y_space = job.h_space = MemorySpace();
  }
  if (!fail_with.ok()) return std::move(done)(fail_with);
  cpu_->Submit(std::move(jobs), std::move(done));
}

std::vector<std::string> FakeCudaBackend::TakeJobs() {
  const std::lock_guard<std::mutex> lock(mu_);
  return std::exchange(jobs_, {});
}

}  // namespace normd
