#include "tests/support/fake_device.h"

#include <cstring>
#include <utility>

#include "kernels/cpu/backend.h"

namespace normd {
namespace {

float FirstElement(const Job& job) {
  float first = 0;
  if (job.x != nullptr && job.plan->dtype == DType::kF32 && job.plan->elements > 0) {
    std::memcpy(&first, job.x, sizeof(first));
  }
  return first;
}

}  // namespace

// The CPU computes all of a launch inline, so that Release returns when it has been done.
FakeDevice::FakeDevice(int number)
    : number_(number), cpu_(MakeCpuBackend({.threads = 1, .inline_elements = int64_t{1} << 40})) {}

FakeDevice::~FakeDevice() {
  std::unique_lock lock(mu_);
  changed_.wait(lock, [this] { return releasing_ == 0; });
}

std::shared_ptr<const PreparedParameters> FakeDevice::Prepare(std::shared_ptr<const HostParameters> parameters) const {
  return cpu_->Prepare(std::move(parameters));
}

void FakeDevice::Submit(std::vector<Job> jobs, Done done) {
  std::vector<Seen> seen;
  seen.reserve(jobs.size());
  for (Job& job : jobs) {
    seen.push_back({.first = FirstElement(job), .x = job.x, .rows = job.plan->StatisticsGroups()});
    job.x_space = job.y_space = job.h_space = job.residual.space = {};  // the CPU takes no others
  }
  {
    const std::lock_guard lock(mu_);
    launches_.push_back(std::move(seen));
    if (holds) {
      held_.push_back({std::move(jobs), std::move(done)});
      changed_.notify_all();
      return;
    }
  }
  Run(std::move(jobs), std::move(done));
}

void FakeDevice::Release(const absl::Status& status) {
  Held held = TakeHeld();
  if (status.ok()) {
    Run(std::move(held.jobs), std::move(held.done));
  } else {
    std::move(held.done)(status);
  }
  const std::lock_guard lock(mu_);
  --releasing_;
  changed_.notify_all();
}

std::vector<std::vector<FakeDevice::Seen>> FakeDevice::launches() const {
  const std::lock_guard lock(mu_);
  return launches_;
}

size_t FakeDevice::held() const {
  const std::lock_guard lock(mu_);
  return held_.size();
}

FakeDevice::Held FakeDevice::TakeHeld() {
  std::unique_lock lock(mu_);
  changed_.wait(lock, [this] { return !held_.empty(); });
  Held held = std::move(held_.front());
  held_.pop_front();
  ++releasing_;
  return held;
}

void FakeDevice::Run(std::vector<Job> jobs, Done done) {
  const absl::Status verdict = judge == nullptr ? absl::OkStatus() : judge(jobs);
  if (!verdict.ok()) return std::move(done)(verdict);
  cpu_->Submit(std::move(jobs), std::move(done));
}

}  // namespace normd
