// What statistics of samples have besides the moments: the extremes of each channel, and moments without its NaN.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "kernels/cpu/exact_sums.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/run.h"
#include "kernels/exact_sums/nearest_moments.h"
#include "kernels/slow_road/format.h"
#include "kernels/slow_road/group.h"

namespace normd::cpu {
namespace {

// Elements that are looked at as f64 at a time.
constexpr int64_t kBlock = 256;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Calls visit(c, first, n, position) for the runs of adjacent elements of the channels [begin, end), in the order of
// memory: the n elements from index `first` on are of channel c where the innermost extent is reduced, else of the
// channels from c on, one of each. `position` is the index in the mask of the first one.
template <typename Visit>
void ForEachRun(const NormPlan& plan, int64_t begin, int64_t end, Visit visit) {
  for (int64_t sample = 0; sample < plan.reduce0; ++sample) {
    if (plan.reduce1 == 1) {
      visit(begin, sample * plan.keep1 + begin, end - begin, sample);
      continue;
    }
    for (int64_t c = begin; c < end; ++c) {
      visit(c, (sample * plan.keep1 + c) * plan.reduce1, plan.reduce1, sample * plan.reduce1);
    }
  }
}

bool Counts(const Run& run, int64_t position) { return run.job.mask == nullptr || run.job.mask[position] != 0; }

// Widens the extremes by one run; see ForEachRun.
void IncludeRun(const Run& run, int64_t c, int64_t first, int64_t n, int64_t position) {
  const int64_t channel_step = run.plan.reduce1 == 1 ? 1 : 0;
  const int64_t position_step = 1 - channel_step;
  std::array<double, kBlock> block;
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t count = std::min(kBlock, n - at);
    ConvertToF64(run.x.At(first + at), count, block.data());
    for (int64_t i = 0; i < count; ++i) {
      if (!Counts(run, position + (at + i) * position_step)) continue;
      const double value = block[static_cast<size_t>(i)];
      double& min = run.job.min[c + (at + i) * channel_step];
      double& max = run.job.max[c + (at + i) * channel_step];
      // Both are false for NaN.
      if (value < min) min = value;
      if (value > max) max = value;
    }
  }
}

template <typename Bits>
bool IsNanOf(const void* element, Bits sign, Bits infinity) {
  Bits bits = 0;
  std::memcpy(&bits, element, sizeof(bits));
  return (bits & static_cast<Bits>(~sign)) > infinity;
}

bool IsNan(DType dtype, const void* element) {
  switch (dtype) {
    case DType::kF32:
      return IsNanOf<uint32_t>(element, 0x80000000, 0x7f800000);
    case DType::kF64:
      return IsNanOf<uint64_t>(element, uint64_t{1} << 63, uint64_t{0x7ff} << 52);
    case DType::kF16:
      return IsNanOf<uint16_t>(element, 0x8000, 0x7c00);
    case DType::kBF16:
      return IsNanOf<uint16_t>(element, 0x8000, 0x7f80);
  }
  return false;
}

// The samples of one channel that count and are no NaN, in the order of memory.
class KeptSamples {
 public:
  KeptSamples(const Run& run, int64_t channel)
      : size_(SizeOf(run.x.dtype)),
        data_(std::make_unique_for_overwrite<char[]>(static_cast<size_t>(run.counted * size_))) {
    if (run.x.lo != nullptr) lo_ = std::make_unique_for_overwrite<double[]>(static_cast<size_t>(run.counted));
    ForEachRun(run.plan, channel, channel + 1, [&](int64_t /*c*/, int64_t first, int64_t n, int64_t position) {
      for (int64_t i = 0; i < n; ++i) {
        if (Counts(run, position + i)) Add(run.x.At(first + i));
      }
    });
  }

  int64_t count() const { return count_; }
  Elements elements(DType dtype) const { return {dtype, data_.get(), lo_.get()}; }

 private:
  void Add(const Elements& element) {
    if (IsNan(element.dtype, element.data)) return;
    std::memcpy(data_.get() + count_ * size_, element.data, static_cast<size_t>(size_));
    if (lo_ != nullptr) lo_[static_cast<size_t>(count_)] = *element.lo;
    ++count_;
  }

  const int64_t size_;
  std::unique_ptr<char[]> data_;
  std::unique_ptr<double[]> lo_;
  int64_t count_ = 0;
};

template <typename Sums>
void AddKept(const Run& run, int64_t channel, Sums* sums) {
  const KeptSamples samples(run, channel);
  const Elements kept = samples.elements(run.x.dtype);
  AddExactly(RowToSum{.dtype = kept.dtype, .data = kept.data, .n = samples.count()}, sums);
}

// Passes on the samples of one channel that count and are no NaN, in the order of memory, some at a time.
void ReadKept(const Run& run, int64_t channel, absl::FunctionRef<void(const slow_road::Element*, int64_t)> take) {
  constexpr int64_t kAtOnce = 256;
  slow_road::Element kept[kAtOnce];
  int64_t count = 0;
  ForEachRun(run.plan, channel, channel + 1, [&](int64_t /*c*/, int64_t first, int64_t n, int64_t position) {
    for (int64_t i = first; i < first + n; ++i) {
      double value = 0;
      ConvertToF64(run.x.At(i), 1, &value);
      if (!Counts(run, position + i - first) || std::isnan(value)) continue;
      slow_road::Element& element = kept[count++];
      ConvertToF64(run.given_x.At(i), 1, &element.x);
      ConvertToF64(run.given_residual.At(i), 1, &element.r);
      if (count == kAtOnce) take(kept, std::exchange(count, 0));
    }
  });
  if (count > 0) take(kept, count);
}

template <typename Sums>
Moment MomentOfSums(const Run& run, int64_t channel) {
  Sums sums;
  AddKept(run, channel, &sums);
  return NearestMoment(sums);
}

// The same for samples that are x + scale * r, not rounded, of which no sums are kept.
Moment MomentOfWide(const Run& run, int64_t channel) {
  int64_t count = 0;
  double sum_of_infinities = 0;
  const auto read = [&](absl::FunctionRef<void(const slow_road::Element*, int64_t)> take) {
    ReadKept(run, channel, take);
  };
  read([&](const slow_road::Element* elements, int64_t n) {
    count += n;
    for (int64_t i = 0; i < n; ++i) {
      const double value = elements[i].x + run.job.residual_scale * elements[i].r;
      if (std::isinf(value)) sum_of_infinities += value;
    }
  });
  if (count == 0) return {};
  if (sum_of_infinities != 0) return {static_cast<double>(count), sum_of_infinities, kNone};
  const slow_road::Formula formula = {
      .statistic = run.plan.statistic, .rule = run.rule, .counted = count, .scale = run.job.residual_scale};
  slow_road::SlowGroup slow(formula, read);
  return {static_cast<double>(count), slow.NearestMean(slow_road::FormatOf(DType::kF64)), slow.NearestM2()};
}

// The moments of the samples of one channel that count and are no NaN: the nearest values, or, with an Inf among the
// samples, what IEEE arithmetic makes of it.
Moment MomentWithoutNan(const Run& run, int64_t channel) {
  if (run.given_residual.data != nullptr) return MomentOfWide(run, channel);
  return run.x.dtype == DType::kF64 ? MomentOfSums<WideExactSums>(run, channel)
                                    : MomentOfSums<NarrowExactSums>(run, channel);
}

}  // namespace

void StoreExtremes(const Run& run) {
  const NormPlan& plan = run.plan;
  const int64_t samples = plan.reduce0 * plan.reduce1;
  run.pool.ParallelFor(plan.keep1, run.Grain(samples), [&](int64_t begin, int64_t end) {
    std::fill(run.job.min + begin, run.job.min + end, kInfinity);
    std::fill(run.job.max + begin, run.job.max + end, -kInfinity);
    ForEachRun(plan, begin, end, [&run](int64_t c, int64_t first, int64_t n, int64_t position) {
      IncludeRun(run, c, first, n, position);
    });
    for (int64_t c = begin; c < end; ++c) {
      if (run.job.min[c] > run.job.max[c]) run.job.min[c] = run.job.max[c] = kNone;
    }
  });
}

void LeaveOutNan(const Run& run) {
  const int64_t samples = run.plan.reduce0 * run.plan.reduce1;
  run.pool.ParallelFor(run.plan.keep1, run.Grain(samples), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      Moment& moment = run.job.moments[c];
      // Without a NaN among its samples, but with infinities of both signs, it is NaN again.
      if (std::isnan(moment.mean)) moment = MomentWithoutNan(run, c);
    }
  });
}

void AddWithoutNan(const Run& run, int64_t channel, NarrowExactSums* sums) { AddKept(run, channel, sums); }
void AddWithoutNan(const Run& run, int64_t channel, WideExactSums* sums) { AddKept(run, channel, sums); }

}  // namespace normd::cpu
