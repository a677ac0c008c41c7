#include "kernels/cpu/nearest_channels.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "kernels/cpu/nearest_group.h"

namespace normd::cpu {
namespace {

ColumnsToFold ToFold(const Run& run, const ReadyForNearest& channels) {
  const Parameters parameters = run.parameters.At(channels.first);
  return {.count = channels.count,
          .mean = channels.mean,
          .inverse = channels.inverse,
          .beta = channels.beta,
          .kappa = channels.kappa,
          .weight = parameters.weight,
          .bias = parameters.bias,
          .bound_factor = run.nearest.bound_factor,
          .dtype = run.plan.dtype};
}

}  // namespace

NearestChannels::NearestChannels(const Run& run, const ReadyForNearest& channels)
    : run_(run), first_(channels.first), folded_(ToFold(run, channels)) {
  const double* const delta = channels.delta;
  const bool is_far = delta != nullptr && std::any_of(delta, delta + channels.count, [](double d) { return d != 0; });
  NearestSpan& careful = span_.careful;
  careful.y_dtype = run.plan.dtype;
  careful.columns = careful.stride = run.plan.reduce1;
  careful.statistics_along = careful.parameters_along = Along::kPositions;
  careful.centring = is_far ? Centring::kTwice : Centring::kOnce;
  careful.shift = channels.shift;
  careful.delta = delta;
  careful.inverse = channels.inverse;
  careful.rounding *= run.nearest.bound_factor;
  span_.stream = run.stream;
}

QuickSpan NearestChannels::SpanOf(GroupRange channels) const {
  const int64_t c = channels.begin - first_;
  QuickSpan span = span_;
  folded_.AddTo(c, &span);
  NearestSpan& careful = span.careful;
  careful.positions = channels.end - channels.begin;
  careful.shift += c;
  if (careful.delta != nullptr) careful.delta += c;
  careful.inverse += c;
  const Parameters parameters = run_.parameters.At(channels.begin);
  careful.weight = parameters.weight;
  careful.bias = parameters.bias;
  return span;
}

void NearestChannels::PutAt(int64_t index, QuickSpan* span) const {
  span->careful.x = run_.X(index);
  span->careful.y = static_cast<char*>(run_.y) + index * SizeOf(run_.plan.dtype);
}

void NearestChannels::ApplyTo(GroupRange channels, Samples samples, bool quickly,
                              absl::FunctionRef<void(const NearestPlace&)> take) const {
  const int64_t k0 = samples.first / run_.plan.reduce0;
  int64_t r0 = samples.first % run_.plan.reduce0;
  const int64_t end = r0 + samples.count;
  QuickSpan span = SpanOf(channels);
  auto report = [&](const Undecided* undecided, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      take({r0, channels.begin + undecided[i].position, undecided[i].column, undecided[i].x});
    }
  };
  span.careful.ReportTo(report);
  for (; r0 < end; ++r0) {
    PutAt(run_.IndexOf(k0, r0, channels.begin, 0), &span);
    quickly ? ApplyNearestQuickly(span) : ApplyNearest(span.careful);
  }
}

void NearestChannels::Look(GroupRange channels, Samples samples, NearestGroups* groups) const {
  ApplyTo(channels, samples, true, [&](const NearestPlace& place) { groups->Add(place); });
}

void NearestChannels::Decide(Samples samples, bool split, NearestGroups* groups) const {
  groups->DecideAdded(
      [&](int64_t k1, absl::FunctionRef<void(const NearestPlace&)> decide) {
        ApplyTo({k1, k1 + 1}, samples, false, decide);
      },
      split);
}

void NearestChannels::Apply(GroupRange channels, Samples samples) const {
  NearestGroups groups(run_, samples.first / run_.plan.reduce0, channels.begin, channels.end - channels.begin);
  Look(channels, samples, &groups);
  Decide(samples, false, &groups);
}

namespace {

// Sets shift and inverse.
void FillCentres(const DivisorRule& rule, const GivenNumbers& numbers, KnownChannels* channels) {
  std::optional<GivenGroups> given = PrepareGiven(rule, numbers, Precision::kExact);
  if (given.has_value()) {
    channels->shift = std::move(given->shift);
    channels->inverse = std::move(given->inverse);
    return;
  }
  for (int64_t c = 0; c < numbers.n; ++c) {  // few channels
    const GroupStatistics statistics =
        GivenStatistics(rule, numbers.mean + c, numbers.variance[c], false, Precision::kExact).statistics;
    channels->shift.push_back(statistics.shift);
    channels->inverse.push_back(statistics.inverse.hi);
  }
}

KnownChannels ChannelsOfGiven(const Run& run) {
  const int64_t n = run.plan.keep1;
  const double* const variance = run.job.given_variance;
  KnownChannels channels;
  channels.mean.assign(run.job.given_mean, run.job.given_mean + n);
  FillCentres(run.rule, {run.job.given_mean, variance, n}, &channels);
  for (int64_t c = 0; c < n; ++c) {
    const bool in_range = InverseIsInRange(channels.inverse[static_cast<size_t>(c)]);
    const double kappa = in_range ? kKappaOfGiven : NormalisedBound().kappa;
    channels.kappa.push_back(std::isinf(variance[c]) ? 0 : kappa);  // y is b
  }
  return channels;
}

}  // namespace

std::optional<KnownChannels> ChannelsOfMoments(const DivisorRule& rule, absl::Span<const Moment> moments) {
  KnownChannels channels;
  std::vector<double> variance;
  for (const Moment& moment : moments) {
    if (!std::isfinite(moment.mean) || !std::isfinite(moment.m2)) return std::nullopt;
    channels.mean.push_back(moment.mean);
    variance.push_back(moment.m2 / moment.count);
  }
  FillCentres(rule, {channels.mean.data(), variance.data(), static_cast<int64_t>(moments.size())}, &channels);
  for (size_t c = 0; c < moments.size(); ++c) {
    // Of a mean at that distance one element of f32 in 2^20 is undecided.
    constexpr double kMostDistance = 64;
    const double inverse = channels.inverse[c];
    if (!InverseIsInRange(inverse) || !(std::abs(moments[c].mean) * inverse <= kMostDistance)) return std::nullopt;
    const NormalisedBound bound = BoundOfMoments(moments[c].mean, moments[c].m2, channels.inverse[c]);
    channels.beta.push_back(bound.beta);
    channels.kappa.push_back(bound.kappa);
  }
  return channels;
}

void RunGivenNearest(const Run& run) {
  const NormPlan& plan = run.plan;
  const KnownChannels given = run.known == nullptr ? ChannelsOfGiven(run) : KnownChannels();
  const KnownChannels& channels = run.known == nullptr ? given : *run.known;
  const NearestChannels elements(run, {.mean = channels.mean.data(),
                                       .shift = channels.shift.data(),
                                       .inverse = channels.inverse.data(),
                                       .beta = channels.beta.empty() ? nullptr : channels.beta.data(),
                                       .kappa = channels.kappa.data(),
                                       .count = plan.keep1});
  // Elements of given statistics are decided at once, and others together with all of their channel, which is read for
  // the first of them.
  std::optional<NearestGroups> known;
  if (run.known != nullptr) known.emplace(run, 0, 0, plan.keep1);
  run.pool.ParallelFor(
      plan.keep0 * plan.reduce0 * plan.keep1, run.Grain(plan.reduce1), [&](int64_t begin, int64_t end) {
        while (begin < end) {
          const int64_t channel = begin % plan.keep1;
          const GroupRange channels = {channel, std::min(plan.keep1, channel + end - begin)};
          const NearestChannels::Samples sample = {begin / plan.keep1, 1};
          known.has_value() ? elements.Look(channels, sample, &*known) : elements.Apply(channels, sample);
          begin += channels.end - channels.begin;
        }
        if (run.stream) FlushStreams();
      });
  if (known.has_value()) elements.Decide({0, plan.reduce0}, true, &*known);
}

bool LooksQuickly(const Run& run, const GroupBound& bound) {
  const bool one_each = run.plan.affine_index != AffineIndex::kElement || run.parameters.absent();
  return !run.wide() && one_each && bound.is_finite && run.plan.cast_order == CastOrder::kAffineThenCast &&
         std::isfinite(run.nearest.bound_factor);
}

namespace {

// The statistics and the bound of a group, once more for each of its channels.
class RepeatedStatistics {
 public:
  RepeatedStatistics(const FinishedStatistics& group, const GroupBound& bound, int64_t count)
      : count_(count), numbers_(static_cast<size_t>(6 * count)) {
    const GroupStatistics& statistics = group.statistics;
    const double values[] = {group.mean,        statistics.inverse.hi, bound.bound.beta,
                             bound.bound.kappa, statistics.shift,      statistics.delta.hi};
    for (size_t i = 0; i < std::size(values); ++i) {
      std::fill_n(numbers_.begin() + static_cast<int64_t>(i) * count, count, values[i]);
    }
  }

  const double* mean() const { return numbers_.data(); }
  const double* inverse() const { return numbers_.data() + count_; }
  const double* beta() const { return numbers_.data() + 2 * count_; }
  const double* kappa() const { return numbers_.data() + 3 * count_; }
  const double* shift() const { return numbers_.data() + 4 * count_; }
  const double* delta() const { return numbers_.data() + 5 * count_; }

 private:
  const int64_t count_;
  absl::InlinedVector<double, 384> numbers_;
};

// Applies the segments of a piece, of which `span` has everything but x and y.
void ApplySegments(const Run& run, const GroupPiece& piece, QuickSpan span,
                   absl::FunctionRef<void(const NearestPlace&)> report) {
  NearestSpan& careful = span.careful;
  int64_t r0 = piece.r0;
  auto place = [&](const Undecided* undecided, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t r1 = piece.begin + undecided[i].position * careful.columns + undecided[i].column;
      report({r0, piece.k1, r1, undecided[i].x});
    }
  };
  careful.ReportTo(place);
  for (; r0 < piece.r0_end; ++r0) {
    const int64_t index = run.IndexOf(piece.k0, r0, piece.k1, piece.begin);
    careful.x = run.X(index);
    careful.y = static_cast<char*>(run.y) + index * SizeOf(run.plan.dtype);
    ApplyNearestQuickly(span);
  }
}

}  // namespace

void ApplyGroupQuickly(const Run& run, const FinishedStatistics& group, const GroupBound& bound,
                       const GroupPiece& piece, absl::FunctionRef<void(const NearestPlace&)> report) {
  const NormPlan& plan = run.plan;
  const int64_t length =
      run.parameters.absent() ? piece.end - piece.begin : std::min(plan.channel_run, piece.end - piece.begin);
  const int64_t count = (piece.end - piece.begin) / length;  // of channels
  const RepeatedStatistics statistics(group, bound, count);
  const Parameters parameters = run.parameters.At(piece.k1 * plan.channels_per_keep1 + piece.begin / plan.channel_run);
  const FoldedColumns folded({.count = count,
                              .mean = plan.statistic == Statistic::kMeanVariance ? statistics.mean() : nullptr,
                              .inverse = statistics.inverse(),
                              .beta = statistics.beta(),
                              .kappa = statistics.kappa(),
                              .weight = parameters.weight,
                              .bias = parameters.bias,
                              .bound_factor = run.nearest.bound_factor,
                              .dtype = plan.dtype});
  QuickSpan span;
  NearestSpan& careful = span.careful;
  careful.shift = statistics.shift();
  careful.delta = statistics.delta();
  careful.inverse = statistics.inverse();
  careful.y_dtype = plan.dtype;
  careful.positions = count;
  careful.columns = careful.stride = length;
  careful.statistics_along = careful.parameters_along = Along::kPositions;
  careful.centring = CentringOf(plan.statistic, group.statistics);
  careful.rounding *= run.nearest.bound_factor;
  careful.weight = parameters.weight;
  careful.bias = parameters.bias;
  folded.AddTo(0, &span);
  span.stream = run.stream;
  ApplySegments(run, piece, span, report);
}

}  // namespace normd::cpu
