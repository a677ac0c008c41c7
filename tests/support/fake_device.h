// A device without a GPU: keeps what is submitted until it is released, or answers at once, and remembers it all. It
// computes on a CPU backend of its own, and its memory is the host's.
// Threads: safe from any thread, but for the settings, which are changed while nothing is submitted.
#ifndef NORMD_TESTS_SUPPORT_FAKE_DEVICE_H_
#define NORMD_TESTS_SUPPORT_FAKE_DEVICE_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"

namespace normd {

class FakeDevice : public Backend {
 public:
  using Judge = std::function<absl::Status(const std::vector<Job>&)>;

  // What a launch was made of, one entry a job. Jobs do not say who asks: tests put a number of their own into the
  // first element of x.
  struct Seen {
    float first;  // element of x, where that is f32 and whole; else 0
    const void* x;
    int64_t rows;
  };

  explicit FakeDevice(int number = 0);
  // Like every backend's: waits until what runs has run.
  ~FakeDevice() override;

  std::string_view name() const override { return "cuda"; }
  std::string KernelName(const NormPlan& /*plan*/) const override { return "cuda/fake"; }
  bool Supports(const NormPlan& plan) const override { return supports == nullptr || supports(plan); }
  MemorySpace memory_space() const override { return CudaSpace(number_); }
  bool AcceptsScattered(const NormPlan& /*plan*/) const override { return false; }
  std::shared_ptr<const PreparedParameters> Prepare(std::shared_ptr<const HostParameters> parameters) const override;
  void Submit(std::vector<Job> jobs, Done done) override;

  // Lets the oldest launch that is held run, or fail with `status`; waits for one where none is held.
  void Release(const absl::Status& status = absl::OkStatus());

  std::vector<std::vector<Seen>> launches() const;
  size_t held() const;

  bool holds = true;
  Judge judge;                                    // null: everything succeeds
  std::function<bool(const NormPlan&)> supports;  // null: everything

 private:
  struct Held {
    std::vector<Job> jobs;
    Done done;
  };

  Held TakeHeld();
  void Run(std::vector<Job> jobs, Done done);

  const int number_;
  const std::unique_ptr<Backend> cpu_;
  mutable std::mutex mu_;
  std::condition_variable changed_;
  int releasing_ = 0;                        // guarded by mu_
  std::deque<Held> held_;                    // guarded by mu_
  std::vector<std::vector<Seen>> launches_;  // guarded by mu_
};

}  // namespace normd

#endif  // NORMD_TESTS_SUPPORT_FAKE_DEVICE_H_
