// The host's part of jobs that a device runs to the nearest value: single elements and statistics of single groups by
// the CPU backend's slow road, or the whole job.
#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>
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

// The Run of a job, as far as the slow road reads it: the elements as they were given, or as the rounded sum with the
// residual.
class SingleResults {
 public:
  SingleResults(const Job& job, const NearestOptions& options, cpu::WorkerPool& pool)
      : run_{.plan = *job.plan, .job = job, .pool = pool, .grain_elements = kGrainElements} {
    const NormPlan& plan = *job.plan;
    run_.rule = {plan.eps, plan.eps_mode, plan.zero_norm_gives_zero, plan.p};
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

  void DecideElement(int64_t index) {
    const NormPlan& plan = run_.plan;
    const int64_t r1 = index % plan.reduce1;
    const int64_t k1 = index / plan.reduce1 % plan.keep1;
    const int64_t segment = index / plan.reduce1 / plan.keep1;
    NearestGroups& group = GroupAt(segment / plan.reduce0, k1);
    group.Decide(segment % plan.reduce0, k1, r1, ValueAt(index));
  }
  void DecideStatistics(int64_t group) {
    const int64_t k1 = group % run_.plan.keep1;
    GroupAt(group / run_.plan.keep1, k1).StoreGroup(k1);
  }

 private:
  void AddResidual() {
    const Job& job = run_.job;
    const Elements residual = {job.residual.dtype, job.residual.data, nullptr};
    if (job.residual_rounding == ResidualRounding::kKeepWide) {
      run_.given_residual = residual;
      return;
    }
    rounded_ = std::make_unique_for_overwrite<char[]>(
        static_cast<size_t>(std::max<int64_t>(1, run_.plan.elements * SizeOf(run_.plan.dtype))));
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

  NearestGroups& GroupAt(int64_t k0, int64_t k1) {
    if (group_ == nullptr || k0 != k0_ || k1 != k1_) group_ = std::make_unique<NearestGroups>(run_, k0, k1, 1);
    k0_ = k0;
    k1_ = k1;
    return *group_;
  }

  using Elements = cpu::Elements;

  Run run_;
  std::unique_ptr<char[]> rounded_;
  std::unique_ptr<NearestGroups> group_;  // of (k0_, k1_)
  int64_t k0_ = 0, k1_ = 0;
};

}  // namespace

NearestHost::NearestHost(const NearestOptions& options)
    : options_(options),
      pool_(std::make_unique<cpu::WorkerPool>(std::max(1, static_cast<int>(std::thread::hardware_concurrency())))) {}

NearestHost::~NearestHost() = default;

void NearestHost::Run(const Job& job) { cpu::RunJob(job, *pool_, kGrainElements, {.nearest = options_}); }

void NearestHost::Decide(const Job& job, const UndecidedResults& undecided) {
  SingleResults results(job, options_, *pool_);
  const NormPlan& plan = *job.plan;
  // Group by group, because the sums of one group are kept.
  const auto group_of = [&plan](int64_t index) {
    const int64_t segment = index / plan.reduce1;
    return segment / plan.keep1 / plan.reduce0 * plan.keep1 + segment % plan.keep1;
  };
  std::vector<int64_t> elements(undecided.elements.begin(), undecided.elements.end());
  std::sort(elements.begin(), elements.end(), [&](int64_t a, int64_t b) {
    const int64_t group_a = group_of(a), group_b = group_of(b);
    return group_a != group_b ? group_a < group_b : a < b;
  });
  for (const int64_t index : elements) results.DecideElement(index);
  for (const int64_t group : undecided.groups) results.DecideStatistics(group);
}

}  // namespace normd
