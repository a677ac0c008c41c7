// The host's part of jobs that a device runs to the nearest value: single elements and statistics of single groups by
// the CPU backend's slow road, or the whole job.
#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/nearest_group.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/run.h"
#include "kernels/nearest.h"

namespace normd {
namespace {

using cpu::ConvertToF64;
using cpu::NearestGroups;
using cpu::Run;

constexpr int64_t kGrainElements = 32 * 1024;

// A job as if one group were all of it.
class JobOfGroup {
 public:
  JobOfGroup(const Job& job, const GroupOnHost& group) : plan_(*job.plan), job_(job) {
    const int64_t k1 = group.group % job.plan->keep1;
    plan_.keep0 = plan_.keep1 = 1;
    plan_.elements = plan_.reduce0 * plan_.reduce1;
    plan_.shape = {plan_.reduce0, plan_.reduce1};
    job_.plan = &plan_;
    job_.x = group.x;
    job_.residual.data = group.residual;
    job_.y = group.y;
    job_.x_space = job_.residual.space = job_.y_space = {};
    if (plan_.given_statistics) {
      if (job_.given_mean != nullptr) job_.given_mean += k1;
      job_.given_variance += k1;
    }
    const int64_t statistics_bytes = group.group * SizeOf(plan_.StatisticsDType());
    if (job_.mean != nullptr) job_.mean = static_cast<char*>(job_.mean) + statistics_bytes;
    if (job_.inverse_std != nullptr) job_.inverse_std = static_cast<char*>(job_.inverse_std) + statistics_bytes;
    if (job_.moments != nullptr) job_.moments += group.group;
    if (job.parameters != nullptr && plan_.affine_index == AffineIndex::kChannel) TakeParametersOf(k1);
  }
  JobOfGroup(const JobOfGroup&) = delete;
  JobOfGroup& operator=(const JobOfGroup&) = delete;

  const Job& job() const { return job_; }

 private:
  // The parameters of the channels of k1, as far as the slow road reads them.
  void TakeParametersOf(int64_t k1) {
    const HostParameters& all = job_.parameters->host();
    auto own = std::make_shared<HostParameters>();
    const int64_t count = (plan_.reduce1 - 1) / plan_.channel_run + 1;
    const auto take = [&](const std::vector<double>& from, std::vector<double>* to) {
      if (from.empty()) return;
      const auto first = from.begin() + k1 * plan_.channels_per_keep1;
      to->assign(first, first + count);
    };
    take(all.weight, &own->weight);
    take(all.weight_rest, &own->weight_rest);
    take(all.bias, &own->bias);
    parameters_ = std::make_unique<PreparedParameters>(std::move(own));
    job_.parameters = parameters_.get();
  }

  NormPlan plan_;
  std::unique_ptr<PreparedParameters> parameters_;  // null: those of the job it was made of
  Job job_;
};

// The Run of a job of one group, as far as the slow road reads it: the elements as they were given, or as the rounded
// sum with the residual.
class SingleResults {
 public:
  SingleResults(const Job& job, const NearestOptions& options, cpu::WorkerPool& pool)
      : run_{.plan = *job.plan, .job = job, .pool = pool, .grain_elements = kGrainElements}, group_(run_, 0, 0, 1) {
    const NormPlan& plan = *job.plan;
    run_.rule = cpu::RuleOf(plan);
    run_.to_nearest = true;
    run_.nearest = options;
    run_.y = job.y;
    const CountedPositions positions = CountPositions(plan, job.mask);
    run_.counted = positions.counted;
    run_.first_counted = positions.first;
    run_.given_x = run_.x = {plan.dtype, job.x, nullptr};
    if (job.residual.present()) AddResidual();
    // The type tells that elements are calculated in pairs; nothing reads the elements themselves.
    if (run_.given_residual.data != nullptr || SumsPowers(plan.statistic)) run_.x = {DType::kF64, nullptr, nullptr};
  }
  SingleResults(const SingleResults&) = delete;
  SingleResults& operator=(const SingleResults&) = delete;

  void DecideElement(int64_t index) {
    group_.Decide(index / run_.plan.reduce1, 0, index % run_.plan.reduce1, ValueAt(index));
  }
  void DecideStatistics() { group_.StoreGroup(0); }

 private:
  void AddResidual() {
    const Job& job = run_.job;
    const cpu::Elements residual = {job.residual.dtype, job.residual.data, nullptr};
    if (job.residual_rounding == ResidualRounding::kKeepWide) {
      run_.given_residual = residual;
      return;
    }
    const int64_t bytes = run_.plan.elements * SizeOf(run_.plan.dtype);
    rounded_ = std::make_unique_for_overwrite<char[]>(static_cast<size_t>(bytes));
    run_.pool.ParallelFor(run_.plan.elements, kGrainElements, [&](int64_t begin, int64_t end) {
      cpu::AddResidualRounded({run_.x.At(begin), residual.At(begin), job.residual_scale, end - begin},
                              rounded_.get() + begin * SizeOf(run_.plan.dtype));
    });
    run_.given_x = run_.x = {run_.plan.dtype, rounded_.get(), nullptr};
  }

  // The element that is normalised, in f64.
  double ValueAt(int64_t index) const {
    double x = 0;
    ConvertToF64(run_.GivenX(index), 1, &x);
    if (run_.given_residual.data == nullptr) return x;
    double r = 0;
    ConvertToF64(run_.given_residual.At(index), 1, &r);
    return std::fma(run_.job.residual_scale, r, x);
  }

  Run run_;
  std::unique_ptr<char[]> rounded_;
  NearestGroups group_;
};

}  // namespace

bool RoundsWeights(const Job& job) {
  const bool needs_rest = job.plan->cast_order == CastOrder::kCastThenAffine || job.plan->dtype == DType::kF64;
  return needs_rest && job.parameters != nullptr && !job.parameters->host().weight_rest.empty();
}

NearestHost::NearestHost(const NearestOptions& options)
    : options_(options),
      pool_(std::make_unique<cpu::WorkerPool>(std::max(1, static_cast<int>(std::thread::hardware_concurrency())))) {}

NearestHost::~NearestHost() = default;

void NearestHost::Run(const Job& job) { cpu::RunJob(job, *pool_, kGrainElements, {.nearest = options_}); }

void NearestHost::Decide(const Job& job, const GroupOnHost& group, const UndecidedResults& undecided) {
  const JobOfGroup own(job, group);
  SingleResults results(own.job(), options_, *pool_);
  for (const int64_t index : undecided.elements) results.DecideElement(index);
  if (undecided.statistics) results.DecideStatistics();
}

}  // namespace normd
