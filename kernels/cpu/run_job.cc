// Runs one job. This file holds all steps except the walkers: the copy of a scattered x, the residual, the permutation,
// the mask, the parameters, and the outputs of a statistics group.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/cpu/run.h"
#include "kernels/slow_road/formula.h"
#include "kernels/slow_road/whole_power.h"
#include "kernels/summation_order.h"

namespace normd::cpu {
namespace {

// Inputs of this size and more are fetched ahead: the two passes alternate, and without that nothing would be read from
// memory during the apply pass.
constexpr int64_t kPrefetchBytes = int64_t{2} << 20;

// Uninitialised scratch.
std::unique_ptr<char[]> Scratch(int64_t bytes) {
  return std::make_unique_for_overwrite<char[]>(static_cast<size_t>(std::max<int64_t>(1, bytes)));
}

// Copies between the natural and the permuted order. `forward`: to[permuted] = from[natural]; else to[natural] =
// from[permuted]. Rows of the innermost permuted axis are shared among the threads.
void Permute(const Run& run, const void* from, void* to, int64_t element_bytes, bool forward) {
  const NormPlan& plan = run.plan;
  const auto rank = static_cast<int64_t>(plan.shape.size());
  int64_t natural_strides[kMaxRank] = {};
  int64_t stride = 1;
  for (int64_t i = rank - 1; i >= 0; --i) {
    natural_strides[i] = stride;
    stride *= plan.shape[static_cast<size_t>(i)];
  }
  const auto axis = [&](int64_t i) { return plan.permutation[static_cast<size_t>(i)]; };
  const auto extent = [&](int64_t i) { return plan.shape[static_cast<size_t>(axis(i))]; };
  const int64_t inner = extent(rank - 1);
  const int64_t inner_stride = natural_strides[axis(rank - 1)];
  run.pool.ParallelFor(plan.elements / std::max<int64_t>(1, inner), run.Grain(inner), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t natural = 0;
      int64_t rest = row;
      for (int64_t i = rank - 2; i >= 0; --i) {
        natural += rest % extent(i) * natural_strides[axis(i)];
        rest /= extent(i);
      }
      for (int64_t i = 0; i < inner; ++i) {
        const int64_t there = (row * inner + i) * element_bytes;
        const int64_t here = (natural + i * inner_stride) * element_bytes;
        const int64_t source = forward ? here : there;
        const int64_t target = forward ? there : here;
        std::memcpy(static_cast<char*>(to) + target, static_cast<const char*>(from) + source,
                    static_cast<size_t>(element_bytes));
      }
    }
  });
}

// Copies a scattered x into x_buffer.
void Gather(const Run& run) {
  const int64_t size_bytes = run.plan.elements * SizeOf(run.plan.dtype);
  run.pool.ParallelFor(size_bytes, run.Grain(1) * SizeOf(run.plan.dtype), [&](int64_t begin, int64_t end) {
    GatherSegments(run.job.x_segments, begin, end - begin, static_cast<std::byte*>(run.job.x_buffer) + begin);
  });
}

// Computes h = x + scale * r, for the job's `h` (if it is wanted) and as the stream that is normalised. Owns the
// scratch that the stream lies in.
class ResidualStream {
 public:
  ResidualStream(const Run& run, const Elements& x) {
    const Job& job = run.job;
    const NormPlan& plan = run.plan;
    const Elements r = {job.residual.dtype, job.residual.data, nullptr};
    const bool keep_wide = job.residual_rounding == ResidualRounding::kKeepWide;
    void* rounded = job.h;
    if (rounded == nullptr && !keep_wide) {
      rounded_ = Scratch(plan.elements * SizeOf(plan.dtype));
      rounded = rounded_.get();
    }
    if (keep_wide) {
      hi_ = Scratch(plan.elements * SizeOf(DType::kF64));
      if (plan.dtype == DType::kF64) lo_ = Scratch(plan.elements * SizeOf(DType::kF64));
    }
    auto* hi = reinterpret_cast<double*>(hi_.get());
    auto* lo = reinterpret_cast<double*>(lo_.get());
    run.pool.ParallelFor(plan.elements, run.Grain(1), [&](int64_t begin, int64_t end) {
      const int64_t n = end - begin;
      void* const h = rounded == nullptr ? nullptr : static_cast<char*>(rounded) + begin * SizeOf(plan.dtype);
      const ResidualSum sum = {x.At(begin), r.At(begin), job.residual_scale, n};
      if (!keep_wide) return AddResidualRounded(sum, h);
      AddResidualWide(sum, hi + begin, lo == nullptr ? nullptr : lo + begin);
      if (run.to_nearest && lo != nullptr && MayOverflow(sum)) FindLostParts(sum, hi + begin, lo + begin);
      if (h != nullptr) AddResidualRounded(sum, h);
    });
    stream_ = keep_wide ? Elements{DType::kF64, hi, lo} : Elements{plan.dtype, rounded, nullptr};
  }

  const Elements& stream() const { return stream_; }

 private:
  // True if scale * r may be beyond the range of f64.
  static bool MayOverflow(const ResidualSum& sum) {
    return std::abs(sum.scale) > (sum.r.dtype == DType::kF64 ? 1 : 0x1p+895);
  }

  // Sets the low parts of sums that are f64 although scale * r is none: AddResidualWide, which has no such pair, leaves
  // them out.
  static void FindLostParts(const ResidualSum& sum, const double* hi, double* lo) {
    constexpr int64_t kAtOnce = 256;
    double residuals[kAtOnce];
    for (int64_t begin = 0; begin < sum.n; begin += kAtOnce) {
      const int64_t n = std::min(kAtOnce, sum.n - begin);
      ConvertToF64(sum.r.At(begin), n, residuals);
      for (int64_t i = 0; i < n; ++i) {
        const double r = residuals[i];
        const double rounded = hi[begin + i];
        if (std::isfinite(sum.scale * r) || !std::isfinite(r) || !std::isfinite(rounded)) continue;
        double x = 0;
        ConvertToF64(sum.x.At(begin + i), 1, &x);
        const DoublePair h = Add({x / 16, 0}, TwoProduct(sum.scale / 16, r));
        lo[begin + i] = (h.hi - rounded / 16 + h.lo) * 16;
      }
    }
  }

  std::unique_ptr<char[]> rounded_, hi_, lo_;
  Elements stream_;
};

// Converts x to f64 in `to`, and returns these elements.
Elements Widened(const Run& run, double* to) {
  run.pool.ParallelFor(run.plan.elements, run.Grain(1),
                       [&](int64_t begin, int64_t end) { ConvertToF64(run.x.At(begin), end - begin, to + begin); });
  return {DType::kF64, to, nullptr};
}

void RunPattern(Run& run) {
  if (run.job.exact != nullptr) {
    SumExactly(run);
  } else if (run.x.data == nullptr) {
    RunScatteredRows(run);
  } else if (run.plan.power_groups > 0) {
    run.to_nearest ? RunNearestPowerNorm(run) : RunPowerNorm(run);
  } else if (run.plan.pattern == Pattern::kRows) {
    RunRows(run);
  } else {
    RunColumns(run);
  }
}

// Runs a plan whose axes do not fit [keep, reduce, keep, reduce]: copies x into that order, and y back.
void RunPermuted(Run& run) {
  const NormPlan& plan = run.plan;
  const int64_t element_bytes = SizeOf(run.x.dtype);
  const auto copy = Scratch(plan.elements * element_bytes);
  Permute(run, run.x.data, copy.get(), element_bytes, true);
  std::unique_ptr<char[]> copy_lo;
  if (run.x.lo != nullptr) {
    copy_lo = Scratch(plan.elements * SizeOf(DType::kF64));
    Permute(run, run.x.lo, copy_lo.get(), SizeOf(DType::kF64), true);
  }
  run.x = {run.x.dtype, copy.get(), reinterpret_cast<const double*>(copy_lo.get())};
  std::unique_ptr<char[]> given_copy, residual_copy;
  const auto permute = [&](Elements& elements, std::unique_ptr<char[]>& storage) {
    if (!run.to_nearest || elements.data == nullptr) return;
    storage = Scratch(plan.elements * SizeOf(elements.dtype));
    Permute(run, elements.data, storage.get(), SizeOf(elements.dtype), true);
    elements.data = storage.get();
  };
  permute(run.given_x, given_copy);
  permute(run.given_residual, residual_copy);
  void* const y = run.y;
  const auto y_copy = Scratch(y == nullptr ? 0 : plan.elements * SizeOf(plan.dtype));
  if (y != nullptr) run.y = y_copy.get();
  run.stream = false;  // y is read back at once
  RunPattern(run);
  if (y != nullptr) Permute(run, y_copy.get(), y, SizeOf(plan.dtype), false);
}

// True if no group of a FAST job can run in f32: a stream is kept wide, w or b does not fit f32, or they are one for
// each position down columns, which have no loop in f32.
bool IsJobBeyondFast(const Run& run) {
  if (run.plan.precision != Precision::kFast) return false;
  const bool is_wide = run.job.residual.present() && run.job.residual_rounding == ResidualRounding::kKeepWide;
  const bool by_position = run.plan.pattern == Pattern::kColumns && run.plan.affine_index == AffineIndex::kElement;
  return is_wide || !run.parameters.fit_f32 || (by_position && !run.parameters.absent());
}

// True if all elements of y are zeros that have the sign of their normalised values: all weights are 0, and a bias is
// absent or -0. Not where statistics are given, from which f64 tells the sign.
bool HasSignsAlone(const Job& job) {
  if (job.parameters == nullptr || job.y == nullptr || !GivesNearest(job)) return false;
  if (job.plan->given_statistics) return false;
  const HostParameters& host = job.parameters->host();
  const auto is_negative_zero = [](double bias) { return bias == 0 && std::signbit(bias); };
  return job.plan->statistic == Statistic::kMeanVariance && job.plan->cast_order == CastOrder::kAffineThenCast &&
         host.largest_weight == 0 &&
         (host.bias.empty() || std::any_of(host.bias.begin(), host.bias.end(), is_negative_zero));
}

// Null for an empty vector, which means absent.
template <typename Real>
const Real* DataOf(const std::vector<Real>& values) {
  return values.empty() ? nullptr : values.data();
}

}  // namespace

void Run::Fold(PairSums* parts, int64_t n, int64_t stride) const {
  if (wide()) {
    order::PairwiseFold(parts, n, stride, AddPairs);
  } else {
    order::PairwiseFold(parts, n, stride, AddPlain);
  }
}

// (|x| / largest)^p. Elements that are nothing beside the largest are 0, as in PowerTerm.
static DoublePair WholeTerm(DoublePair x, const PowerScale& by) {
  const DoublePair ratio = Divide(x.hi < 0 ? Negate(x) : x, by.largest);
  return ratio.hi < 0x1p-160 ? DoublePair{} : slow_road::WholePower(ratio, static_cast<int>(by.p));
}

void PowerTerms(const Elements& x, int64_t n, const PowerScale& by, double* high, double* low) {
  const auto* const data = static_cast<const char*>(x.data);
  const bool has_terms = by.largest > 0 && std::isfinite(by.largest);
  for (int64_t i = 0; i < n; ++i) {
    double element = 0;
    std::memcpy(&element, data + i * SizeOf(DType::kF64), sizeof(element));  // any alignment
    const DoublePair value = {element * by.scale, x.lo == nullptr ? 0 : x.lo[i] * by.scale};
    const DoublePair term = !has_terms       ? DoublePair{}
                            : by.by_products ? WholeTerm(value, by)
                                             : PowerTerm(value, by.largest, by.p);
    high[i] = term.hi;
    low[i] = term.lo;
  }
}

FinishedStatistics Run::Given(int64_t k1) const {
  if (given.has_value()) return given->At(k1);
  const double* const mean = job.given_mean == nullptr ? nullptr : job.given_mean + k1;
  FinishedStatistics given_group = GivenStatistics(rule, mean, job.given_variance[k1], wide(), precision());
  given_group.m2 = job.given_variance[k1];  // GroupBound asks whether it is finite
  return given_group;
}

FinishedStatistics Run::Finish(Statistic statistic, const PairSums& sums, int64_t count, double shift, double scale,
                               Precision precision) const {
  const auto n = static_cast<double>(count);
  if (to_nearest && statistic == Statistic::kPowerSum && std::isfinite(shift)) {
    const DoublePair norm = Multiply({shift, 0}, slow_road::WholeRoot(sums.second, static_cast<int>(rule.p)));
    return FinishWide(Statistic::kAbsSum, rule, {.first = {}, .second = norm}, n, 0, scale);
  }
  return wide() ? FinishWide(statistic, rule, sums, n, shift, scale)
                : FinishNarrow(statistic, rule, sums, n, shift, precision);
}

void Run::StoreGroup(int64_t group, const FinishedStatistics& result) const {
  const int64_t at = group * SizeOf(plan.StatisticsDType());
  if (job.mean != nullptr) {
    ConvertFromF64(&result.mean, 1, plan.StatisticsDType(), static_cast<char*>(job.mean) + at);
  }
  if (job.inverse_std != nullptr) {
    ConvertFromF64(&result.inverse_std, 1, plan.StatisticsDType(), static_cast<char*>(job.inverse_std) + at);
  }
  if (job.moments == nullptr || plan.given_statistics) return;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Moment& moment = job.moments[group];
  moment.count = static_cast<double>(counted);
  moment.mean = counted == 0 ? 0 : std::isnan(result.mean) ? nan : result.mean;
  moment.m2 = counted == 0 ? 0 : std::isnan(result.m2) ? nan : result.m2;
}

void Run::StoreChannels(int64_t group, const ChannelStatistics& channels, int64_t begin, int64_t end) const {
  if (!StoresGroups()) return;
  FinishedStatistics result;
  for (int64_t c = begin; c < end; ++c) {
    result.mean = channels.mean[c];
    result.m2 = channels.m2[c];
    result.inverse_std = channels.inverse[c];
    StoreGroup(group + c - begin, result);
  }
}

bool Run::SplitsTasks(int64_t tasks, int64_t elements_per_task) const {
  if (elements_per_task <= grain_elements) return false;
  const int64_t threads = pool.threads();
  const int64_t rounds = order::CeilDiv(tasks, threads);
  return 3 * (rounds * threads - tasks) > rounds * threads;  // over a third of the threads' time
}

int64_t Run::Grain(int64_t elements_per_item) const {
  return std::max<int64_t>(1, grain_elements / std::max<int64_t>(1, elements_per_item));
}

void RunJob(const Job& job, WorkerPool& pool, int64_t grain_elements, const CpuBackendOptions& options,
            const KnownChannels* known) {
  if (SumsMomentsExactly(job)) return RunWithExactMoments(job, pool, grain_elements, options);
  const bool has_signs_alone = HasSignsAlone(job);
  if (has_signs_alone && job.mask == nullptr) {
    // A y near 0 tells no sign, but the normalised value does, and that times 0 is the same in either order, because
    // elements of the group itself do not normalise to Inf.
    NormPlan casts_first = *job.plan;
    casts_first.cast_order = CastOrder::kCastThenAffine;
    Job in_that_order = job;
    in_that_order.plan = &casts_first;
    return RunJob(in_that_order, pool, grain_elements, options);
  }
  const NormPlan& plan = *job.plan;
  const bool is_wide = job.residual.present() && job.residual_rounding == ResidualRounding::kKeepWide;
  Run run{.plan = plan,
          .job = job,
          .pool = pool,
          .grain_elements = std::max<int64_t>(1, grain_elements / plan.WorkPerElement())};
  run.rule = RuleOf(plan);
  run.x = {plan.dtype, job.x, nullptr};
  if (job.x_buffer != nullptr) {
    Gather(run);
    run.x.data = job.x_buffer;
  }
  run.y = job.y;
  run.stream = plan.elements * SizeOf(plan.dtype) >= options.stream_bytes;
  run.prefetch = plan.elements * SizeOf(plan.dtype) >= kPrefetchBytes;
  if (job.parameters != nullptr) {
    const HostParameters& host = job.parameters->host();
    run.parameters = {DataOf(host.weight), DataOf(host.bias), DataOf(host.weight32),
                      DataOf(host.bias32), host.fit_f32,      host.equal_f32};
  }
  const CountedPositions positions = CountPositions(plan, job.mask);
  run.counted = positions.counted;
  run.first_counted = positions.first;
  run.nearest = options.nearest;
  run.known = known;
  if (has_signs_alone) run.nearest.bound_factor = std::numeric_limits<double>::infinity();  // masked elements
  run.to_nearest = GivesNearest(job) || IsJobBeyondFast(run);
  if (job.parameters != nullptr) {
    run.largest_weight = job.parameters->host().largest_weight;
    run.largest_bias = job.parameters->host().largest_bias;
  }
  // The slow road reads the whole group, of which a part is y by then.
  std::unique_ptr<char[]> original;
  const bool reads_once = !is_wide && !SumsPowers(plan.statistic) && ReadsRowsOnce(run);
  if (run.to_nearest && run.x.data == run.y && run.y != nullptr && !reads_once) {
    original = Scratch(plan.elements * SizeOf(plan.dtype));
    std::memcpy(original.get(), run.x.data, static_cast<size_t>(plan.elements * SizeOf(plan.dtype)));
    run.x.data = original.get();
  }
  run.given_x = run.x;
  std::unique_ptr<ResidualStream> residual;
  if (job.residual.present()) {
    residual = std::make_unique<ResidualStream>(run, run.x);
    run.x = residual->stream();
    if (is_wide) {
      run.given_residual = {job.residual.dtype, job.residual.data, nullptr};
    } else {
      run.given_x = run.x;
    }
  }
  std::unique_ptr<char[]> widened;
  if (SumsPowers(plan.statistic) && !run.wide()) {
    widened = Scratch(plan.elements * SizeOf(DType::kF64));
    run.x = Widened(run, reinterpret_cast<double*>(widened.get()));
  }
  if (plan.given_statistics && !run.wide() && !run.to_nearest && job.mean == nullptr && job.inverse_std == nullptr) {
    const GivenNumbers numbers = {job.given_mean, job.given_variance, plan.keep1};
    run.given = PrepareGiven(run.rule, numbers, run.precision());
    if (run.given.has_value() && !run.given->in_f32) run.given.reset();
  }
  if (job.min != nullptr) StoreExtremes(run);  // before y, which may be x
  if (plan.permutation.empty()) {
    RunPattern(run);
  } else {
    RunPermuted(run);
  }
  if (plan.clip.has_value() && job.y != nullptr) ClipY(run);
  if (plan.skips_nan && job.moments != nullptr && job.exact == nullptr) LeaveOutNan(run);
}

}  // namespace normd::cpu
