#include "kernels/cuda/run.h"

#include <compare>
#include <map>
#include <memory>
#include <utility>

#include "kernels/certificate.h"
#include "kernels/cuda/nearest.h"
#include "kernels/cuda/status.h"

namespace normd::cuda {
namespace {

// Returns an error from the enclosing function.
#define NORMD_RETURN_IF_FAILED(expression)       \
  do {                                           \
    absl::Status normd_status = (expression);    \
    if (!normd_status.ok()) return normd_status; \
  } while (false)

template <typename T>
absl::Status Take(Arena* arena, int64_t count, T** memory) {
  absl::StatusOr<void*> taken = arena->Take(count * static_cast<int64_t>(sizeof(T)));
  if (!taken.ok()) return taken.status();
  *memory = static_cast<T*>(*taken);
  return absl::OkStatus();
}

template <typename T>
absl::Status TakeZeros(Arena* arena, cudaStream_t stream, int64_t count, T** memory) {
  NORMD_RETURN_IF_FAILED(Take(arena, count, memory));
  NORMD_CUDA_RETURN_STATUS(cudaMemsetAsync(*memory, 0, static_cast<size_t>(count) * sizeof(T), stream), "cudaMemset");
  return absl::OkStatus();
}

ParameterIndex IndexOf(const NormPlan& plan) {
  return {.kind = plan.affine_index, .channels_per_keep1 = plan.channels_per_keep1, .channel_run = plan.channel_run};
}

DivisorRule RuleOf(const NormPlan& plan) { return {plan.eps, plan.eps_mode, plan.zero_norm_gives_zero, plan.p}; }

RowRange RangeOf(const DeviceJob& job, int64_t first_row) {
  const NormPlan& plan = *job.plan;
  return {.x = job.x,
          .residual = job.residual.data,
          .h = job.h,
          .y = job.y,
          .first_row = first_row,
          .residual_scale = job.residual_scale,
          .rule = RuleOf(plan),
          .parameters = job.parameters,
          .index = IndexOf(plan),
          .keep1 = plan.keep1,
          .outputs = job.outputs};
}

RowKind KindOf(const DeviceJob& job) {
  const NormPlan& plan = *job.plan;
  return {.dtype = plan.dtype,
          .statistic = plan.statistic,
          .precision = plan.precision,
          .n = plan.reduce1,
          .counted = plan.statistic_reduce1};
}

bool RunsInRegisters(const DeviceLimits& limits, const DeviceJob& job) {
  return FitsInRegisters(limits, KindOf(job), RangeOf(job, 0));
}

// Runs all rows of `jobs`, those of up to kMaxRanges jobs in one launch. REQUIRES: the jobs have the same RowKey.
absl::Status RunWholeRows(const DeviceLimits& limits, absl::Span<const DeviceJob* const> jobs, cudaStream_t stream) {
  const bool in_registers = RunsInRegisters(limits, *jobs.front());
  while (!jobs.empty()) {
    const auto together = jobs.subspan(0, RowLaunch::kMaxRanges);
    jobs.remove_prefix(together.size());
    RowLaunch launch{KindOf(*together.front())};
    launch.range_count = static_cast<int>(together.size());
    for (size_t i = 0; i < together.size(); ++i) {
      launch.ranges[i] = RangeOf(*together[i], launch.rows);
      launch.rows += together[i]->plan->StatisticsGroups();
    }
    NORMD_CUDA_RETURN_STATUS(
        in_registers ? NormaliseRegisterRows(limits, launch, stream) : NormaliseRows(limits, launch, stream), "rows");
  }
  return absl::OkStatus();
}

// True if the kernel that reads the rows can add the residual.
bool FusesResidual(const DeviceJob& job) {
  return job.residual.data == nullptr ||
         (job.residual_rounding == ResidualRounding::kRoundFirst && job.residual.dtype == job.plan->dtype);
}

// Runs one job with a launch for each step: residual, permutation, sums, elements. Where rows fit on chip, the last two
// are one launch.
class JobRun {
 public:
  // `alone`: no other job could share a launch.
  JobRun(const DeviceLimits& limits, const DeviceJob& job, bool alone, Arena* arena, cudaStream_t stream)
      : limits_(limits),
        job_(job),
        plan_(*job.plan),
        alone_(alone),
        arena_(arena),
        stream_(stream),
        x_{.dtype = plan_.dtype, .data = job.x},
        y_(job.y) {}
  // Of a job whose x is `x` instead.
  JobRun(const DeviceLimits& limits, const DeviceJob& job, const Elements& x, Arena* arena, cudaStream_t stream)
      : JobRun(limits, job, true, arena, stream) {
    x_ = x;
  }

  // True if tiles are the faster way for rows that fit on chip: GroupNorm of few groups, measured on an H100.
  bool PrefersTiles() const {
    constexpr int64_t kLeastElements = 2048, kMostElements = 16384;
    return alone_ && plan_.affine_index == AffineIndex::kChannel && y_ != nullptr && job_.residual.data == nullptr &&
           plan_.StatisticsGroups() <= limits_.multiprocessors && plan_.reduce1 >= kLeastElements &&
           plan_.reduce1 <= kMostElements && FitsInTiles(limits_, PlanGroups(), PlanElements());
  }

  // Decides elements of rows, which are all that the plan has, in pairs. REQUIRES: x is their f64.
  absl::Status DecideLeft(int64_t keep1, const LeftElement* elements, int64_t count, DecidedElement* decided) {
    GroupWork work = PlanGroups();
    const NearestWork nearest = PlanNearest(work);
    NORMD_RETURN_IF_FAILED(BoundStatistics(&work, nearest));
    return StatusOf(DecideInPairs(work, PlanElements(), nearest, keep1, elements, count, decided, stream_), "elements");
  }

  absl::Status Run() {
    if (IsNearest()) {
      NORMD_CUDA_RETURN_STATUS(cudaMemsetAsync(&job_.left->count, 0, sizeof(job_.left->count), stream_), "cudaMemset");
    }
    if (job_.residual.data != nullptr && !FusesNearestResidual()) NORMD_RETURN_IF_FAILED(AddResidual());
    if (SumsPowers(plan_.statistic) && x_.dtype != DType::kF64) NORMD_RETURN_IF_FAILED(WidenX());
    if (plan_.permutation.empty()) return RunPattern();
    NORMD_RETURN_IF_FAILED(PermuteX());
    NORMD_RETURN_IF_FAILED(RunPattern());
    if (job_.y == nullptr) return absl::OkStatus();
    return Moved(y_, job_.y, SizeOf(plan_.dtype), true);
  }

 private:
  bool IsNearest() const { return job_.left != nullptr; }

  // True if one launch normalises rows to the nearest value. REQUIRES: IsNearest().
  bool RunsOnce() const {
    return y_ != nullptr && job_.mask == nullptr && x_.dtype == plan_.dtype && RunsAsNearestRows(limits_, plan_);
  }
  // True if that launch adds the residual, too. Moments take the sum from memory.
  bool FusesNearestResidual() const {
    return IsNearest() && FusesResidual(job_) && plan_.permutation.empty() && job_.outputs.moments == nullptr &&
           RunsOnce();
  }

  absl::Status AddResidual() {
    if (job_.residual_rounding == ResidualRounding::kRoundFirst) {
      void* h = job_.h;
      if (h == nullptr) {
        char* scratch = nullptr;
        NORMD_RETURN_IF_FAILED(Take(arena_, plan_.elements * SizeOf(plan_.dtype), &scratch));
        h = scratch;
      }
      NORMD_CUDA_RETURN_STATUS(
          AddResidualRounded(limits_, x_, job_.residual, job_.residual_scale, plan_.elements, h, stream_), "residual");
      x_.data = h;
      return absl::OkStatus();
    }
    double* hi = nullptr;
    double* lo = nullptr;
    NORMD_RETURN_IF_FAILED(Take(arena_, plan_.elements, &hi));
    if (plan_.dtype == DType::kF64) NORMD_RETURN_IF_FAILED(Take(arena_, plan_.elements, &lo));
    if (job_.h != nullptr) {
      // The wide stream is rounded already, and h is rounded once, under FAST and for LpNorm of any order, too.
      NORMD_CUDA_RETURN_STATUS(
          AddResidualRounded(limits_, x_, job_.residual, job_.residual_scale, plan_.elements, job_.h, stream_),
          "residual");
    }
    NORMD_CUDA_RETURN_STATUS(
        AddResidualWide(limits_, x_, job_.residual, job_.residual_scale, plan_.elements, hi, lo, stream_), "residual");
    x_ = {.dtype = DType::kF64, .data = hi, .lo = lo};
    return absl::OkStatus();
  }

  absl::Status WidenX() {
    double* wide = nullptr;
    NORMD_RETURN_IF_FAILED(Take(arena_, plan_.elements, &wide));
    NORMD_CUDA_RETURN_STATUS(Widen(limits_, x_, plan_.elements, wide, stream_), "f64 copy");
    x_ = {.dtype = DType::kF64, .data = wide};
    return absl::OkStatus();
  }

  absl::Status Moved(const void* from, void* to, int64_t element_bytes, bool back) {
    PermuteWork work;
    work.rank = static_cast<int>(plan_.shape.size());
    work.elements = plan_.elements;
    work.element_bytes = element_bytes;
    work.back = back;
    int64_t strides[PermuteWork::kMaxRank] = {};
    int64_t stride = 1;
    for (int axis = work.rank - 1; axis >= 0; --axis) {
      strides[axis] = stride;
      stride *= plan_.shape[static_cast<size_t>(axis)];
    }
    for (int i = 0; i < work.rank; ++i) {
      const auto axis = static_cast<size_t>(plan_.permutation[static_cast<size_t>(i)]);
      work.extents[i] = plan_.shape[axis];
      work.strides[i] = strides[axis];
    }
    return StatusOf(Permute(limits_, work, from, to, stream_), "permutation");
  }

  absl::Status PermuteX() {
    char* copy = nullptr;
    NORMD_RETURN_IF_FAILED(Take(arena_, plan_.elements * SizeOf(x_.dtype), &copy));
    NORMD_RETURN_IF_FAILED(Moved(x_.data, copy, SizeOf(x_.dtype), false));
    double* lo = nullptr;
    if (x_.lo != nullptr) {
      NORMD_RETURN_IF_FAILED(Take(arena_, plan_.elements, &lo));
      NORMD_RETURN_IF_FAILED(Moved(x_.lo, lo, SizeOf(DType::kF64), false));
    }
    x_ = {.dtype = x_.dtype, .data = copy, .lo = lo};
    if (job_.y == nullptr) return absl::OkStatus();
    char* y = nullptr;
    NORMD_RETURN_IF_FAILED(Take(arena_, plan_.elements * SizeOf(plan_.dtype), &y));
    y_ = y;
    return absl::OkStatus();
  }

  // The statistics groups of the plan itself.
  GroupWork PlanGroups() const {
    GroupWork work;
    work.x = x_;
    work.columns = plan_.pattern == Pattern::kColumns;
    work.keep0 = plan_.keep0;
    work.reduce0 = plan_.reduce0;
    work.keep1 = plan_.keep1;
    work.reduce1 = plan_.reduce1;
    work.statistic_reduce1 = plan_.statistic_reduce1;
    work.statistic = plan_.statistic;
    // f64 elements are calculated in pairs, whatever the plan says.
    work.precision = work.wide() ? Precision::kExact : plan_.precision;
    work.rule = RuleOf(plan_);
    work.mask = job_.mask;
    work.counted = job_.positions.counted;
    work.first_counted = job_.positions.first;
    work.is_16bit = x_.dtype == DType::kF16 || x_.dtype == DType::kBF16;
    work.fit_f32 = job_.parameters.fit_f32;
    work.outputs = job_.outputs;
    return work;
  }

  ApplyWork PlanElements() const {
    return {.y_dtype = plan_.dtype,
            .y = y_,
            .parameters = job_.parameters,
            .index = IndexOf(plan_),
            .cast_order = plan_.cast_order};
  }

  absl::Status TakeMemory(GroupWork* work, bool sums) {
    NORMD_RETURN_IF_FAILED(Take(arena_, work->StatisticsGroups(), &work->results));
    if (!work->wide()) NORMD_RETURN_IF_FAILED(Take(arena_, work->StatisticsGroups(), &work->results32));
    if (!sums) return absl::OkStatus();
    const int64_t part_bytes = work->wide() ? sizeof(PairSums) : sizeof(NarrowPart);
    if (work->columns) work->fold = LeastFold(limits_, *work);
    char* parts = nullptr;
    NORMD_RETURN_IF_FAILED(Take(arena_, PartsToTake(limits_, *work) * part_bytes, &parts));
    work->parts = parts;
    if (!work->wide()) return absl::OkStatus();
    NORMD_RETURN_IF_FAILED(Take(arena_, work->StatisticsGroups(), &work->states));
    NORMD_RETURN_IF_FAILED(TakeZeros(arena_, stream_, kRounds, &work->pending));
    return TakeZeros(arena_, stream_, work->StatisticsGroups(), &work->magnitudes);
  }

  NearestWork PlanNearest(const GroupWork& work) const {
    NearestWork nearest = {.bound_factor = job_.bound_factor,
                           .is_given = plan_.given_statistics,
                           .element_count = plan_.elements,
                           .left = job_.left};
    nearest.additions = work.columns ? AdditionsInColumns(plan_.reduce0, plan_.reduce1)
                                     : AdditionsInRows(plan_.reduce0, plan_.statistic_reduce1);
    const bool has_residual = job_.residual.data != nullptr && job_.residual_rounding == ResidualRounding::kKeepWide;
    // The largest magnitude is that of the high parts.
    const bool in_pairs = x_.lo != nullptr && plan_.statistic != Statistic::kMaxAbs;
    if (has_residual) nearest.elements.relative = in_pairs ? 2 * kPairUnit : kUnit;
    return nearest;
  }

  // The statistics of groups and their bounds, in `work` for the apply pass.
  absl::Status BoundStatistics(GroupWork* work, const NearestWork& nearest) {
    NORMD_RETURN_IF_FAILED(TakeMemory(work, !plan_.given_statistics));
    NORMD_RETURN_IF_FAILED(Take(arena_, work->StatisticsGroups(), &work->nearest));
    if (plan_.given_statistics) {
      NORMD_CUDA_RETURN_STATUS(TakeGivenStatistics(*work, job_.given_mean, job_.given_variance, stream_), "statistics");
    } else {
      NORMD_CUDA_RETURN_STATUS(ReduceGroups(limits_, *work, stream_), "sums");
    }
    return StatusOf(BoundGroups(*work, nearest, stream_), "bounds");
  }

  // The sums, the bounds and the elements of a job to the nearest value.
  absl::Status RunToNearest() {
    GroupWork work = PlanGroups();
    work.precision = Precision::kExact;
    work.is_16bit = false;  // elements are calculated in f64
    if (plan_.given_statistics) work.outputs.moments = nullptr;
    NearestWork nearest = PlanNearest(work);
    // Sums in f64 do not decide moments.
    const bool sums_again = work.outputs.moments != nullptr && !work.wide();
    if (!sums_again) nearest.moments = work.outputs.moments;
    if (RunsOnce()) {
      NearestRows rows = {.work = work, .apply = PlanElements(), .nearest = nearest};
      if (FusesNearestResidual()) {
        rows.residual = job_.residual.data;
        rows.residual_scale = job_.residual_scale;
        rows.h = job_.h;
      }
      NORMD_CUDA_RETURN_STATUS(NormaliseRowsToNearest(limits_, rows, stream_), "rows");
      return sums_again ? RunMomentsInPairs() : absl::OkStatus();
    }
    NORMD_RETURN_IF_FAILED(BoundStatistics(&work, nearest));
    if (y_ != nullptr && plan_.elements > 0) {
      NORMD_CUDA_RETURN_STATUS(ApplyToNearest(limits_, work, PlanElements(), nearest, stream_), "elements");
    }
    return sums_again ? RunMomentsInPairs() : absl::OkStatus();
  }

  // The moments of groups of narrow elements, from sums in pairs of f64.
  absl::Status RunMomentsInPairs() {
    NORMD_RETURN_IF_FAILED(WidenX());
    GroupWork work = PlanGroups();
    work.outputs = {};
    NearestWork nearest = PlanNearest(work);
    nearest.moments = job_.outputs.moments;
    return BoundStatistics(&work, nearest);
  }

  absl::Status RunPattern() {
    if (IsNearest()) return RunToNearest();
    if (x_.dtype == plan_.dtype && job_.mask == nullptr && RunsAsWholeRows(limits_, plan_) && !PrefersTiles()) {
      DeviceJob rows = job_;
      rows.x = x_.data;
      rows.y = y_;
      rows.residual = {};
      rows.h = nullptr;
      return RunWholeRows(limits_, {&rows}, stream_);
    }
    GroupWork work = PlanGroups();
    const ApplyWork apply = PlanElements();
    const bool has_elements = y_ != nullptr && plan_.elements > 0;
    if (has_elements && !plan_.given_statistics && FitsInBlocks(limits_, work, apply)) {
      return StatusOf(NormaliseGroups(limits_, work, apply, stream_), "groups");
    }
    if (has_elements && !plan_.given_statistics && FitsInTiles(limits_, work, apply)) {
      return StatusOf(NormaliseTiles(limits_, work, apply, stream_), "groups");
    }
    if (plan_.given_statistics) {
      work.outputs.moments = nullptr;
      GroupWork given = work;
      given.given_mean = job_.given_mean;
      given.given_variance = job_.given_variance;
      if (has_elements && TakesGivenStatistics(given, apply)) {
        return StatusOf(ApplyGroups(limits_, given, apply, stream_), "elements");
      }
    }
    NORMD_RETURN_IF_FAILED(TakeMemory(&work, !plan_.given_statistics));
    if (plan_.given_statistics) {
      NORMD_CUDA_RETURN_STATUS(TakeGivenStatistics(work, job_.given_mean, job_.given_variance, stream_), "statistics");
    } else {
      NORMD_CUDA_RETURN_STATUS(ReduceGroups(limits_, work, stream_), "sums");
    }
    if (!has_elements) return absl::OkStatus();
    return StatusOf(ApplyGroups(limits_, work, apply, stream_), "elements");
  }

  const DeviceLimits& limits_;
  const DeviceJob& job_;
  const NormPlan& plan_;
  const bool alone_;
  Arena* const arena_;
  const cudaStream_t stream_;
  Elements x_;
  void* y_;
};

// The properties that jobs must have in common to share a launch.
struct RowKey {
  DType dtype;
  Statistic statistic;
  int64_t n, counted;
  bool in_registers;

  auto operator<=>(const RowKey&) const = default;
};

RowKey KeyOf(const DeviceLimits& limits, const DeviceJob& job) {
  const NormPlan& plan = *job.plan;
  return {plan.dtype, plan.statistic, plan.reduce1, plan.statistic_reduce1, RunsInRegisters(limits, job)};
}

}  // namespace

bool DecidesInPairs(const DeviceJob& job) {
  const NormPlan& plan = *job.plan;
  return plan.pattern == Pattern::kRows && plan.reduce0 == 1 && plan.elements > 0 && plan.permutation.empty() &&
         !plan.given_statistics && plan.dtype != DType::kF64 && !SumsPowers(plan.statistic) && job.mask == nullptr &&
         job.residual.data == nullptr && job.y != nullptr;
}

absl::Status DecideLeftInPairs(const DeviceLimits& limits, const DeviceJob& job, const LeftOfRows& left, Arena* arena,
                               cudaStream_t stream, const DecidedElement** decided) {
  const auto to_device = [&](const auto& values, auto** memory) {
    NORMD_RETURN_IF_FAILED(Take(arena, static_cast<int64_t>(values.size()), memory));
    return StatusOf(
        cudaMemcpyAsync(*memory, values.data(), values.size() * sizeof(values[0]), cudaMemcpyHostToDevice, stream),
        "cudaMemcpy to the device");
  };
  NormPlan plan = *job.plan;
  plan.keep0 = static_cast<int64_t>(left.rows.size());
  plan.keep1 = 1;
  plan.elements = plan.keep0 * plan.reduce1;
  int64_t* rows = nullptr;
  LeftElement* elements = nullptr;
  double* wide = nullptr;
  DecidedElement* result = nullptr;
  NORMD_RETURN_IF_FAILED(to_device(left.rows, &rows));
  NORMD_RETURN_IF_FAILED(to_device(left.elements, &elements));
  NORMD_RETURN_IF_FAILED(Take(arena, plan.elements, &wide));
  NORMD_RETURN_IF_FAILED(Take(arena, static_cast<int64_t>(left.elements.size()), &result));
  NORMD_CUDA_RETURN_STATUS(
      WidenRows(limits, {.dtype = plan.dtype, .data = job.x}, plan.reduce1, rows, plan.keep0, wide, stream), "rows");
  DeviceJob of_rows = job;
  of_rows.plan = &plan;
  of_rows.outputs = {};
  JobRun run(limits, of_rows, {.dtype = DType::kF64, .data = wide}, arena, stream);
  NORMD_RETURN_IF_FAILED(run.DecideLeft(job.plan->keep1, elements, static_cast<int64_t>(left.elements.size()), result));
  *decided = result;
  return absl::OkStatus();
}

bool RunsAsWholeRows(const DeviceLimits& limits, const NormPlan& plan) {
  return plan.precision == Precision::kFast && plan.pattern == Pattern::kRows && !plan.given_statistics &&
         plan.reduce0 == 1 && plan.elements > 0 && plan.statistic_reduce1 > 0 &&
         FitsOnChip(limits, plan.dtype, plan.reduce1);
}

bool RunsAsNearestRows(const DeviceLimits& limits, const NormPlan& plan) {
  return plan.precision == Precision::kExact && plan.pattern == Pattern::kRows && plan.dtype != DType::kF64 &&
         !plan.given_statistics && plan.reduce0 == 1 && plan.elements > 0 && plan.statistic_reduce1 > 0 &&
         !SumsPowers(plan.statistic) && FitsNearestRows(limits, plan.dtype, plan.reduce1);
}

absl::Status RunJobs(const DeviceLimits& limits, absl::Span<const DeviceJob> jobs, Arena* arena, cudaStream_t stream) {
  std::map<RowKey, std::vector<const DeviceJob*>> rows;
  for (const DeviceJob& job : jobs) {
    const NormPlan& plan = *job.plan;
    const bool is_there = plan.permutation.empty() && FusesResidual(job);
    JobRun run(limits, job, jobs.size() == 1, arena, stream);
    if (is_there && job.mask == nullptr && RunsAsWholeRows(limits, plan) && !run.PrefersTiles()) {
      rows[KeyOf(limits, job)].push_back(&job);
    } else {
      NORMD_RETURN_IF_FAILED(run.Run());
    }
  }
  for (const auto& [key, jobs_of_key] : rows) {
    NORMD_RETURN_IF_FAILED(RunWholeRows(limits, jobs_of_key, stream));
  }
  return absl::OkStatus();
}

}  // namespace normd::cuda
