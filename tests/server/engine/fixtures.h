// What the engine tests share: an engine over the CPU backend and a memory store, calls made from plain vectors, and a
// backend that counts, delays or fails what passes through it.
#ifndef NORMD_TESTS_SERVER_ENGINE_FIXTURES_H_
#define NORMD_TESTS_SERVER_ENGINE_FIXTURES_H_

#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/base/errors.h"
#include "kernels/cpu/backend.h"
#include "server/base/mutex.h"
#include "server/engine/engine.h"
#include "server/schedule/device_scheduler.h"
#include "server/session/memory/memory_store.h"
#include "tests/server/session/fixtures.h"

namespace normd::engine_test {

// Passes everything on to the CPU backend, on a thread of its own if asked to.
// Threads: the methods are safe from any thread; the settings are changed while no call runs.
class SpyBackend : public Backend {
 public:
  ~SpyBackend() override {
    for (std::thread& thread : threads_) thread.join();
  }

  std::string_view name() const override { return cpu_->name(); }
  std::string KernelName(const NormPlan& plan) const override { return cpu_->KernelName(plan); }
  bool Supports(const NormPlan& plan) const override { return cpu_->Supports(plan); }
  int64_t inline_elements() const override { return cpu_->inline_elements(); }
  bool AcceptsScattered(const NormPlan& plan) const override { return cpu_->AcceptsScattered(plan); }
  std::shared_ptr<const PreparedParameters> Prepare(std::shared_ptr<const HostParameters> parameters) const override {
    ++prepared;
    prepared_on = std::this_thread::get_id();
    return cpu_->Prepare(std::move(parameters));
  }
  void Submit(std::vector<Job> jobs, Done done) override {
    {
      MutexLock lock(mu_);
      job_lists_.push_back(static_cast<int>(jobs.size()));
    }
    if (!fail_with.ok()) return done(fail_with);
    if (!on_a_thread) return cpu_->Submit(std::move(jobs), std::move(done));
    MutexLock lock(mu_);
    threads_.emplace_back([this, jobs = std::move(jobs), done = std::move(done)]() mutable {
      cpu_->Submit(std::move(jobs), std::move(done));
    });
  }

  // The sizes of the lists submitted since the last call of this.
  std::vector<int> TakeJobLists() {
    MutexLock lock(mu_);
    return std::exchange(job_lists_, {});
  }

  // Parameters are prepared as soon as they are converted, and on the thread that converts them.
  mutable std::atomic<int> prepared{0};
  mutable std::atomic<std::thread::id> prepared_on;  // by the thread that prepared last
  absl::Status fail_with;
  bool on_a_thread = false;

 private:
  const std::unique_ptr<Backend> cpu_ =
      MakeCpuBackend({.threads = 2, .inline_elements = 1 << 20, .grain_elements = 64});
  Mutex mu_;
  std::vector<int> job_lists_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
};

// A tensor that owns its elements.
template <typename T>
struct Values {
  Shape shape;
  std::vector<T> elements;

  TensorView View() const {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    static const T kEmpty = 0;
    return {.dtype = sizeof(T) == 4 ? DType::kF32 : DType::kF64,
            .shape = shape,
            .data = elements.empty() ? &kEmpty : elements.data(),
            .size_bytes = static_cast<int64_t>(elements.size() * sizeof(T))};
  }
};
using Floats = Values<float>;
using Doubles = Values<double>;

template <typename T>
std::vector<T> ElementsOf(const OutputTensor& output) {
  std::vector<T> values(output.bytes.size_bytes() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), output.bytes.data(), output.bytes.size_bytes());
  return values;
}

inline std::string BytesOf(const OutputTensor& output) {
  return {reinterpret_cast<const char*>(output.bytes.data()), output.bytes.size_bytes()};
}

inline NormSpec LayerSpec(std::vector<int64_t> normalized_shape) {
  return {.attributes = LayerNormSpec{.normalized_shape = std::move(normalized_shape)}};
}

inline Call CallTo(NormSpec spec, const TensorView& x, Mode mode = Mode::kInference) {
  Call call;
  call.target = std::move(spec);
  call.x = x;
  call.mode = mode;
  return call;
}

inline Call CallTo(std::string session, const TensorView& x, Mode mode = Mode::kInference) {
  Call call;
  call.target = SessionTarget{std::move(session)};
  call.x = x;
  call.mode = mode;
  return call;
}

class EngineFixture : public ::testing::Test {
 protected:
  absl::StatusOr<CallReply> Run(Call call) {
    return session_test::Wait<CallReply>([&](auto done) { engine_.Submit(std::move(call), std::move(done)); });
  }

  absl::StatusOr<PooledReply> Commit(PooledStep step) {
    return session_test::Wait<PooledReply>([&](auto done) { engine_.CommitMoments(std::move(step), std::move(done)); });
  }

  std::vector<absl::StatusOr<CallReply>> RunBatch(std::vector<Call> calls) {
    std::promise<std::vector<absl::StatusOr<CallReply>>> promise;
    std::future<std::vector<absl::StatusOr<CallReply>>> future = promise.get_future();
    engine_.SubmitBatch(std::move(calls), [&promise](auto replies) { promise.set_value(std::move(replies)); });
    return future.get();
  }

  SessionPtr CreateSession(const std::string& id, const NormSpec& spec, int64_t channels) {
    Session session = session_test::NewSession(id, spec, channels);
    EXPECT_TRUE(engine_.ValidateNewSession(session).ok()) << engine_.ValidateNewSession(session);
    absl::StatusOr<SessionPtr> created = session_test::Create(store_, session);
    EXPECT_TRUE(created.ok()) << created.status();
    return *created;
  }

  // The field that a call is refused for; "" with a failure if it is not INVALID_ARGUMENT.
  std::string RefusedField(Call call) {
    const absl::Status status = Run(std::move(call)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    const std::optional<ErrorDetail> detail = GetErrorDetail(status);
    return detail.has_value() ? detail->field : "";
  }

  session_test::ManualClock clock_;
  SpyBackend backend_;
  DeviceScheduler scheduler_{&backend_};
  MemoryStore store_{SessionLimits(), &clock_};
  Resources resources_;
  Engine engine_{&scheduler_, &store_, &resources_};
};

}  // namespace normd::engine_test

#endif  // NORMD_TESTS_SERVER_ENGINE_FIXTURES_H_
