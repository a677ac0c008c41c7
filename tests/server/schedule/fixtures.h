// What the tests of server/schedule share: rows to normalise. The device that they go to is FakeDevice's.
#ifndef NORMD_TESTS_SERVER_SCHEDULE_FIXTURES_H_
#define NORMD_TESTS_SERVER_SCHEDULE_FIXTURES_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/cpu/backend.h"
#include "server/schedule/device_queue.h"
#include "server/schedule/device_scheduler.h"
#include "server/schedule/work.h"
#include "tests/support/fake_device.h"
#include "tests/support/spec.h"

namespace normd::schedule_test {

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

// Rows of one caller with their result. The first element of x is the caller's number, by which a FakeDevice tells
// whose they are. Lives until it is done.
struct Rows {
  Rows(uint64_t caller, NormPlan rows_plan) : plan(std::move(rows_plan)) {
    x.resize(static_cast<size_t>(plan.elements));
    y.resize(x.size());
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i * 7 + caller * 131 + 1)) * 3;
    if (!x.empty()) x[0] = static_cast<float>(caller);
    context.caller = caller;
  }
  Rows(uint64_t caller, int64_t rows, int64_t length) : Rows(caller, RowsPlan(rows, length)) {}
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  Job MakeJob() {
    Job job;
    job.plan = &plan;
    job.parameters = parameters;
    job.x = x.data();
    job.y = y.data();
    return job;
  }
  void SubmitTo(DeviceScheduler& scheduler) {
    executed.clear();
    Work work;
    work.jobs = {MakeJob()};
    work.devices = {device};
    work.context = context;
    work.executed = &executed;
    scheduler.Submit(std::move(work), MakeDone());
  }
  void SubmitTo(DeviceQueue& queue) { queue.Submit({MakeJob()}, context, MakeDone()); }

  // Of the scheduler, once it is done: the CPU, as Choose says, where nothing is noted.
  Device ran() const { return executed.empty() ? Device::kCpu : executed.front().device; }
  bool fell_back() const { return !executed.empty() && executed.front().fell_back; }

  NormPlan plan;
  std::vector<float> x, y;
  const PreparedParameters* parameters = nullptr;  // of the backend or the scheduler that it is submitted to
  RequestContext context;
  Device device = Device::kAuto;  // that the caller asks for
  std::vector<Executed> executed;
  absl::Status status = absl::UnknownError("not done");
  int dones = 0;
  std::function<void()> on_done;

 private:
  Backend::Done MakeDone() {
    return [this](absl::Status s) {
      status = std::move(s);
      ++dones;
      if (on_done != nullptr) on_done();
    };
  }
};

// What the CPU makes of the same rows alone, as bytes.
inline bool HasBytesOfASingleCall(const Rows& rows) {
  const std::unique_ptr<Backend> cpu = MakeCpuBackend({.threads = 1, .inline_elements = int64_t{1} << 40});
  std::vector<float> y(rows.x.size());
  Job job;
  job.plan = &rows.plan;
  job.parameters = rows.parameters;
  job.x = rows.x.data();
  job.y = y.data();
  cpu->Submit({job}, [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
  return std::memcmp(y.data(), rows.y.data(), y.size() * sizeof(float)) == 0;
}

}  // namespace normd::schedule_test

#endif  // NORMD_TESTS_SERVER_SCHEDULE_FIXTURES_H_
