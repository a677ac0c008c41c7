#include "client/cpp/sample_moments.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "client/cpp/tensor.h"

namespace normd::client {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();

// The first pass over the rows: how many values of each channel are finite, their sum in `mean`, and their extremes.
template <typename T>
void SumRows(absl::Span<const T> rows, SampleMoments& out) {
  const size_t channels = out.channels();
  for (size_t row = 0; row < rows.size(); row += channels) {
    for (size_t c = 0; c < channels; ++c) {
      const auto x = static_cast<double>(rows[row + c]);
      const bool is_finite = std::isfinite(x);
      out.count[c] += is_finite ? 1 : 0;
      out.mean[c] += is_finite ? x : 0;
      out.min[c] = is_finite && x < out.min[c] ? x : out.min[c];
      out.max[c] = is_finite && x > out.max[c] ? x : out.max[c];
    }
  }
}

// The second pass: the squared deviations from the mean.
template <typename T>
void SumDeviations(absl::Span<const T> rows, SampleMoments& out) {
  const size_t channels = out.channels();
  for (size_t row = 0; row < rows.size(); row += channels) {
    for (size_t c = 0; c < channels; ++c) {
      const auto x = static_cast<double>(rows[row + c]);
      const double deviation = std::isfinite(x) ? x - out.mean[c] : 0;
      out.m2[c] += deviation * deviation;
    }
  }
}

void Empty(size_t c, SampleMoments& out) {
  out.count[c] = out.mean[c] = out.m2[c] = out.samples[c] = 0;
  out.min[c] = kInfinite;
  out.max[c] = -kInfinite;
}

template <typename T>
SampleMoments MomentsOf(absl::Span<const T> rows, size_t channels, NonFinite policy) {
  SampleMoments out = SampleMoments::None(channels);
  const size_t row_count = rows.size() / channels;
  const double needed = policy == NonFinite::kDropsChannel ? static_cast<double>(row_count) : 1;
  SumRows(rows, out);
  for (size_t c = 0; c < channels; ++c) out.mean[c] /= std::max(out.count[c], 1.0);
  SumDeviations(rows, out);
  for (size_t c = 0; c < channels; ++c) {
    // Finite values may have sums that are not.
    const bool is_finite = std::isfinite(out.mean[c]) && std::isfinite(out.m2[c]);
    if (out.count[c] < needed || !is_finite) Empty(c, out);
  }
  out.samples = out.count;
  return out;
}

// The smaller and the larger of two extremes; not known if either is.
double Least(double a, double b) { return std::isnan(a) || std::isnan(b) ? kNotKnown : std::min(a, b); }
double Greatest(double a, double b) { return std::isnan(a) || std::isnan(b) ? kNotKnown : std::max(a, b); }

v1::Tensor ToTensor(const std::vector<double>& values) {
  return Tensor::F64({static_cast<int64_t>(values.size())}, values).ToProto();
}

// Extremes as they are sent: those of channels without samples, which nobody reads, are 0 instead of an infinity.
v1::Tensor ExtremesToTensor(std::vector<double> values, const std::vector<double>& count) {
  for (size_t c = 0; c < values.size(); ++c) values[c] = count[c] > 0 ? values[c] : 0;
  return ToTensor(values);
}

}  // namespace

SampleMoments SampleMoments::None(size_t channels) {
  SampleMoments out;
  for (std::vector<double>* const zeros : {&out.count, &out.mean, &out.m2, &out.samples}) {
    zeros->assign(channels, 0);
  }
  out.min.assign(channels, kInfinite);
  out.max.assign(channels, -kInfinite);
  return out;
}

SampleMoments SampleMoments::Of(absl::Span<const double> rows, size_t channels, NonFinite policy) {
  return MomentsOf(rows, channels, policy);
}

SampleMoments SampleMoments::Of(absl::Span<const float> rows, size_t channels, NonFinite policy) {
  return MomentsOf(rows, channels, policy);
}

bool SampleMoments::empty() const {
  return std::all_of(count.begin(), count.end(), [](double n) { return n == 0; });
}

double SampleMoments::MostSamples() const {
  return samples.empty() ? 0 : *std::max_element(samples.begin(), samples.end());
}

void SampleMoments::Merge(const SampleMoments& later, double decay) {
  for (size_t c = 0; c < channels(); ++c) {
    const double n = later.count[c];
    if (n == 0) continue;
    const double fading = decay == 1 ? 1 : std::pow(decay, later.samples[c]);
    const double before = count[c] * fading, total = before + n;
    // A side without samples has no say, whatever its mean is.
    const double delta = before > 0 ? later.mean[c] - mean[c] : 0;
    mean[c] = before > 0 ? mean[c] + delta * (n / total) : later.mean[c];
    m2[c] = m2[c] * fading + later.m2[c] + delta * delta * before * (n / total);
    count[c] = total;
    samples[c] += later.samples[c];
    min[c] = Least(min[c], later.min[c]);
    max[c] = Greatest(max[c], later.max[c]);
  }
}

SampleMoments SampleMoments::Below(double max_count, const SampleMoments& state) const {
  SampleMoments out = *this;
  for (size_t c = 0; c < channels(); ++c) {
    if (state.count[c] >= max_count) Empty(c, out);
  }
  return out;
}

std::vector<double> SampleMoments::Variance(double prior) const {
  std::vector<double> out(channels());
  for (size_t c = 0; c < channels(); ++c) out[c] = count[c] > 0 ? m2[c] / count[c] : prior;
  return out;
}

v1::Moments SampleMoments::ToProto() const {
  v1::Moments out;
  *out.mutable_count() = ToTensor(count);
  *out.mutable_mean() = ToTensor(mean);
  *out.mutable_m2() = ToTensor(m2);
  *out.mutable_min() = ExtremesToTensor(min, count);
  *out.mutable_max() = ExtremesToTensor(max, count);
  if (samples != count) *out.mutable_samples() = ToTensor(samples);
  return out;
}

absl::StatusOr<SampleMoments> SampleMoments::FromState(const v1::RunningState& state) {
  SampleMoments out;
  const std::pair<const v1::Tensor&, std::vector<double>&> fields[] = {{state.count(), out.count},
                                                                       {state.mean(), out.mean},
                                                                       {state.m2(), out.m2},
                                                                       {state.min(), out.min},
                                                                       {state.max(), out.max}};
  for (const auto& [tensor, values] : fields) {
    const absl::StatusOr<Tensor> parsed = Tensor::FromProto(tensor);
    if (!parsed.ok()) return parsed.status();
    values = parsed->ToDoubles();
    if (values.size() != out.count.size()) return absl::InternalError("the tensors of a state differ in length");
  }
  out.samples = out.count;
  return out;
}

}  // namespace normd::client
