// What the tests of server/batch share: rows to normalise, and a device that computes on the CPU when it is told to.
#ifndef NORMD_TESTS_SERVER_BATCH_FIXTURES_H_
#define NORMD_TESTS_SERVER_BATCH_FIXTURES_H_

#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/cpu/backend.h"
#include "server/base/mutex.h"
#include "tests/support/spec.h"

namespace normd::batch_test {

// A device without a GPU: keeps what is submitted until it is released, or answers at once, and remembers it all.
// Threads: safe from any thread, but for the settings, which are changed while nothing is submitted.
class FakeDevice : public Backend {
 public:
  using Judge = std::function<absl::Status(const std::vector<Job>&)>;

  // What a launch was made of, one entry a job.
  struct Seen {
    uint64_t caller;
    const void* x;
    int64_t rows;
  };

  // Like every backend's: waits until what runs has run.
  ~FakeDevice() override {
    MutexLock lock(mu_);
    while (releasing_ > 0) changed_.Wait(mu_);
  }

  std::string_view name() const override { return "cuda"; }
  std::string KernelName(const NormPlan&) const override { return "cuda/fake"; }
  bool Supports(const NormPlan& plan) const override { return supports == nullptr || supports(plan); }
  bool TakesSegments(const NormPlan&) const override { return false; }
  absl::StatusOr<std::shared_ptr<const Layer>> Prepare(const ParameterViews& parameters,
                                                       double weight_offset) const override {
    return cpu_->Prepare(parameters, weight_offset);
  }
  void Submit(std::vector<Job> jobs, Done done) override {
    std::vector<Seen> seen;
    seen.reserve(jobs.size());
    for (Job& job : jobs) {
      seen.push_back({job.errand.caller, job.x, job.plan->Sets()});
      job.in_cuda = {};  // its memory is the host's, and the CPU computes
    }
    {
      MutexLock lock(mu_);
      launches_.push_back(std::move(seen));
      if (holds) {
        held_.push_back({std::move(jobs), std::move(done)});
        changed_.SignalAll();
        return;
      }
    }
    Run(std::move(jobs), std::move(done));
  }

  // Lets the oldest launch that is held run, or fail with `status`.
  void Release(const absl::Status& status = absl::OkStatus()) {
    Held held = TakeHeld();
    if (status.ok()) {
      Run(std::move(held.jobs), std::move(held.done));
    } else {
      std::move(held.done)(status);
    }
    MutexLock lock(mu_);
    --releasing_;
    changed_.SignalAll();
  }

  std::vector<std::vector<Seen>> launches() const {
    MutexLock lock(mu_);
    return launches_;
  }
  size_t held() const {
    MutexLock lock(mu_);
    return held_.size();
  }

  bool holds = true;
  Judge judge;                                    // null: everything succeeds
  std::function<bool(const NormPlan&)> supports;  // null: everything

 private:
  struct Held {
    std::vector<Job> jobs;
    Done done;
  };

  Held TakeHeld() {
    MutexLock lock(mu_);
    while (held_.empty()) changed_.Wait(mu_);
    Held held = std::move(held_.front());
    held_.pop_front();
    ++releasing_;
    return held;
  }

  void Run(std::vector<Job> jobs, Done done) {
    const absl::Status verdict = judge == nullptr ? absl::OkStatus() : judge(jobs);
    if (!verdict.ok()) return std::move(done)(verdict);
    cpu_->Submit(std::move(jobs), std::move(done));
  }

  const std::unique_ptr<Backend> cpu_ = MakeCpuBackend({.threads = 1, .inline_elements = int64_t{1} << 40});
  mutable Mutex mu_;
  CondVar changed_;
  int releasing_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Held> held_ ABSL_GUARDED_BY(mu_);
  std::vector<std::vector<Seen>> launches_ ABSL_GUARDED_BY(mu_);
};

inline NormPlan RowsPlan(int64_t rows, int64_t length, Precision precision = Precision::kExact,
                         Method method = Method::kRmsNorm) {
  NormSpec spec = SpecOf(method, Layout::kChannelsLast);
  if (method == Method::kLayerNorm) SetNormalizedShape(&spec, {length});
  const Mode mode = method == Method::kBatchNorm ? Mode::kTraining : Mode::kInference;
  absl::StatusOr<NormPlan> plan =
      MakePlan(spec, DType::kF32, {rows, length}, {.mode = mode, .given_statistics = false, .precision = precision});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

// Rows of one caller with their result. Lives until it is done.
struct Work {
  Work(uint64_t caller, NormPlan work_plan) : plan(std::move(work_plan)) {
    x.resize(static_cast<size_t>(plan.elements));
    y.resize(x.size());
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i * 7 + caller * 131 + 1)) * 3;
    errand.caller = caller;
  }
  Work(uint64_t caller, int64_t rows, int64_t length) : Work(caller, RowsPlan(rows, length)) {}
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  Job MakeJob() {
    Job job;
    job.plan = &plan;
    job.x = x.data();
    job.y = y.data();
    job.errand = errand;
    job.errand.executed = &executed;
    return job;
  }
  void SubmitTo(Backend& backend) {
    std::vector<Job> jobs = {MakeJob()};
    backend.Submit(std::move(jobs), [this](absl::Status s) {
      status = std::move(s);
      ++dones;
      if (on_done != nullptr) on_done();
    });
  }

  NormPlan plan;
  std::vector<float> x, y;
  Errand errand;
  Executed executed;
  absl::Status status = absl::UnknownError("not done");
  int dones = 0;
  std::function<void()> on_done;
};

// What the CPU makes of the same rows alone, as bytes.
inline bool HasBytesOfASingleCall(const Work& work) {
  const std::unique_ptr<Backend> cpu = MakeCpuBackend({.threads = 1, .inline_elements = int64_t{1} << 40});
  std::vector<float> y(work.x.size());
  Job job;
  job.plan = &work.plan;
  job.x = work.x.data();
  job.y = y.data();
  cpu->Submit({job}, [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
  return std::memcmp(y.data(), work.y.data(), y.size() * sizeof(float)) == 0;
}

}  // namespace normd::batch_test

#endif  // NORMD_TESTS_SERVER_BATCH_FIXTURES_H_
