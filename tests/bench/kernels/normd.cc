#include <atomic>
#include <optional>
#include <vector>

#include "kernels/cpu/backend.h"
#include "tests/bench/kernels/candidate.h"
#include "tests/bench/or_die.h"

namespace normd::bench {

namespace {

class Normd final : public Candidate {
 public:
  explicit Normd(Precision precision) : precision_(precision) {}

  std::string_view name() const override { return precision_ == Precision::kFast ? "FAST" : "EXACT"; }
  bool WritesResult() const override { return true; }

  bool Prepare(const Workload& workload, const Buffers& buffers, int threads) override {
    if (threads != threads_) {
      // One thread is the caller's: a hop to another costs what a kernel of this size does.
      const int64_t inline_elements = threads == 1 ? int64_t{1} << 40 : CpuBackendOptions().inline_elements;
      backend_ = MakeCpuBackend({.threads = threads, .inline_elements = inline_elements});
      threads_ = threads;
    }
    plan_ = OrDie(MakePlan(workload.Spec(), workload.dtype, workload.ShapeOf(), workload.Options(precision_)));
    parameters_ =
        backend_->Prepare(std::make_shared<const HostParameters>(ConvertParameters(Parameters(workload, buffers), 0)));
    job_.emplace();
    job_->plan = &plan_;
    job_->parameters = parameters_.get();
    job_->x = buffers.x();
    job_->y = buffers.y();
    if (plan_.given_statistics) {
      mean_.assign(buffers.parameters(2), buffers.parameters(2) + plan_.num_channels);
      variance_.assign(buffers.parameters(3), buffers.parameters(3) + plan_.num_channels);
      job_->given_mean = mean_.data();
      job_->given_variance = variance_.data();
    } else if (workload.op == Op::kBatchTraining && workload.keeps_moments) {
      moments_.resize(static_cast<size_t>(plan_.StatisticsGroups()));
      job_->moments = moments_.data();
    }
    return true;
  }

 private:
  void Call() override {
    done_.clear();
    backend_->Submit({*job_}, [this](const absl::Status& status) {
      OrDie(status);
      done_.test_and_set();
      done_.notify_one();
    });
    done_.wait(false);
  }

  ParameterViews Parameters(const Workload& workload, const Buffers& buffers) const {
    ParameterViews views = {.order = plan_.parameter_order};
    const auto view = [&](int which) {
      TensorView parameter;
      parameter.shape = {plan_.parameter_length};
      parameter.data = buffers.parameters(which);
      parameter.size_bytes = plan_.parameter_length * int64_t{sizeof(float)};
      return parameter;
    };
    if (plan_.parameter_length > 0) views.weight = view(0);
    if (plan_.parameter_length > 0 && workload.TakesBias()) views.bias = view(1);
    return views;
  }

  const Precision precision_;
  int threads_ = 0;
  std::unique_ptr<Backend> backend_;
  NormPlan plan_;
  std::shared_ptr<const PreparedParameters> parameters_;
  std::vector<double> mean_, variance_;
  Moments moments_;
  std::optional<Job> job_;
  std::atomic_flag done_;
};

}  // namespace

std::unique_ptr<Candidate> MakeNormd(Precision precision) { return std::make_unique<Normd>(precision); }

}  // namespace normd::bench
