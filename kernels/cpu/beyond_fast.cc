#include "kernels/cpu/beyond_fast.h"

#include <cstring>

#include "absl/functional/function_ref.h"

namespace normd::cpu {
namespace {

// The plan of the groups (k0, k1), k1 in `groups`, as if they were all.
NormPlan PlanOfGroups(NormPlan plan, GroupRange groups) {
  plan.keep0 = 1;
  plan.keep1 = groups.end - groups.begin;
  plan.elements = plan.reduce0 * plan.keep1 * plan.reduce1;
  return plan;
}

// Their job, of which x and y mean nothing.
Job JobOfGroups(const Run& run, const NormPlan* plan, int64_t k0, GroupRange groups) {
  Job job = run.job;
  const int64_t first = k0 * run.plan.keep1 + groups.begin;
  const auto skip = [](auto* numbers, int64_t n) { return numbers == nullptr ? nullptr : numbers + n; };
  const auto skip_outputs = [&](void* outputs) {
    return skip(static_cast<char*>(outputs), first * SizeOf(run.plan.StatisticsDType()));
  };
  job.plan = plan;
  job.given_mean = skip(job.given_mean, groups.begin);
  job.given_variance = skip(job.given_variance, groups.begin);
  job.mean = skip_outputs(job.mean);
  job.inverse_std = skip_outputs(job.inverse_std);
  job.moments = skip(job.moments, first);
  return job;
}

}  // namespace

bool IsBeyondFast(const Run& run, const FinishedStatistics& group) {
  if (run.precision() != Precision::kFast) return false;
  return group.shift_too_far || group.out_of_fast_range || !group.elements_in_f32;
}

// Groups whose y is x, by themselves: a copy with the strides of x would take a page for each of their positions.
struct NearestRun::Copy {
  const Run& original;
  const int64_t k0;
  const GroupRange groups;
  const NormPlan plan;
  const Job job;
  const std::unique_ptr<char[]> x, y;

  Copy(const Run& run, int64_t of_k0, GroupRange of)
      : original(run),
        k0(of_k0),
        groups(of),
        plan(PlanOfGroups(run.plan, of)),
        job(JobOfGroups(run, &plan, of_k0, of)),
        x(std::make_unique_for_overwrite<char[]>(Bytes())),
        y(std::make_unique_for_overwrite<char[]>(Bytes())) {
    ForEachSegment([this](char* from, size_t at, size_t bytes) { std::memcpy(x.get() + at, from, bytes); });
  }

  size_t Bytes() const { return static_cast<size_t>(plan.elements * SizeOf(plan.dtype)); }

  // Calls body(segment of the original, its offset in the copies, its bytes).
  void ForEachSegment(absl::FunctionRef<void(char*, size_t, size_t)> body) const {
    const int64_t size = SizeOf(plan.dtype);
    const auto bytes = static_cast<size_t>(plan.keep1 * plan.reduce1 * size);
    for (int64_t r0 = 0; r0 < plan.reduce0; ++r0) {
      const int64_t at = original.IndexOf(k0, r0, groups.begin, 0);
      body(static_cast<char*>(original.y) + at * size, static_cast<size_t>(r0) * bytes, bytes);
    }
  }

  // Not streamed, because y is read back at once.
  Run MakeRun() const {
    const int64_t of_group = plan.affine_index == AffineIndex::kChannel ? plan.channels_per_keep1 : 0;
    Run run{.plan = plan, .job = job, .pool = original.pool, .grain_elements = original.grain_elements};
    run.x = {original.x.dtype, x.get(), nullptr};
    run.y = y.get();
    run.parameters = original.parameters.At(groups.begin * of_group);
    run.rule = original.rule;
    run.largest_weight = original.largest_weight;
    run.largest_bias = original.largest_bias;
    run.nearest = original.nearest;
    run.first_k1 = groups.begin;
    run.counted = original.counted;
    run.first_counted = original.first_counted;
    return run;
  }
};

NearestRun::NearestRun(const Run& run, int64_t k0, GroupRange groups)
    : copy_(run.x.data == run.y && run.plan.elements > 0 ? std::make_unique<Copy>(run, k0, groups) : nullptr),
      run_(copy_ == nullptr ? run : copy_->MakeRun()),
      k0_(copy_ == nullptr ? k0 : 0),
      groups_(copy_ == nullptr ? groups : GroupRange{0, groups.end - groups.begin}) {
  run_.to_nearest = true;
  run_.given.reset();  // prepared for f32
  run_.given_x = run_.x;
}

NearestRun::~NearestRun() = default;

void NearestRun::WriteY() const {
  if (copy_ == nullptr) return;
  copy_->ForEachSegment([this](char* to, size_t at, size_t bytes) { std::memcpy(to, copy_->y.get() + at, bytes); });
}

}  // namespace normd::cpu
