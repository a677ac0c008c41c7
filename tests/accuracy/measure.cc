#include "tests/accuracy/measure.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "tests/kernels/cases.h"
#include "tests/support/random.h"
#include "tests/support/run_case.h"

namespace normd::accuracy {
namespace {

template <typename T>
T OrDie(absl::StatusOr<T> value, const Case& c) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "%s: %s\n", c.Name().c_str(), value.status().ToString().c_str());
  std::exit(2);
}

Moments StatisticsOf(Backend& backend, const Case& c, std::string x) {
  CaseData data;
  data.x = std::move(x);
  return OrDie(RunCase(backend, c, data), c).moments;
}

}  // namespace

void Worst::Add(const Worst& other) {
  elements += other.elements;
  bound = std::max(bound, other.bound);
  if (other.ulp < ulp || (other.ulp == ulp && !name.empty())) return;
  ulp = other.ulp;
  name = other.name;
}

Worst Measure(Backend& backend, const Case& c, const CaseData& data, Shares* shares) {
  const NormPlan plan = OrDie(PlanOf(c), c);
  const Outputs got = OrDie(RunCase(backend, c, data), c);
  const oracle::Result want = oracle::Compute(OracleSpec(c), OracleInput(c, data));
  const oracle::Bound bound = BoundOf(plan, c.dtype);
  Worst worst = {.bound = bound.ulp, .name = c.Name()};
  for (const double error : oracle::YErrors(OracleSpec(c), bound, OracleType(c.dtype), got.y.data(), want)) {
    if (error < 0) continue;
    ++worst.elements;
    worst.ulp = std::max(worst.ulp, error);
  }
  if (shares != nullptr && plan.precision == Precision::kExact) shares->Add(WronglyRounded(c, data, got));
  return worst;
}

OwnUlp MeasureAtOwnUlp(Backend& backend, const Case& c, const CaseData& data) {
  const Outputs got = OrDie(RunCase(backend, c, data), c);
  const oracle::Result want = oracle::Compute(OracleSpec(c), OracleInput(c, data));
  const oracle::Type type = OracleType(c.dtype);
  OwnUlp own;
  double squares = 0;
  for (size_t i = 0; i < want.y.size(); ++i) {
    const oracle::Wide y = oracle::Load(type, got.y.data(), static_cast<int64_t>(i));
    const double error = oracle::ErrorUlp(type, y, want.y[i], want.y[i]);
    own.max = std::max(own.max, error);
    squares += error * error;
  }
  own.rms = std::sqrt(squares / static_cast<double>(want.y.size()));
  return own;
}

std::vector<BatchError> MeasureBatchStatistics(Backend& backend, int64_t samples, int64_t channels) {
  const NormSpec spec = cases::Of(Method::kBatchNorm, Layout::kChannelsLast);
  const auto of = [&](int64_t batch) { return cases::On(spec, {batch, channels}); };
  std::string x = MakeValues(Data::kNormal, DType::kF32, samples * channels, 17);
  const size_t row_bytes = static_cast<size_t>(channels) * sizeof(float);
  const Moments whole = StatisticsOf(backend, of(samples), x);
  std::vector<BatchError> errors;
  for (int64_t batch = 2; batch <= 128; batch *= 2) {
    BatchError error = {.batch = batch};
    for (int64_t first = 0; first + batch <= samples; first += batch) {
      const std::string rows = x.substr(static_cast<size_t>(first) * row_bytes, static_cast<size_t>(batch) * row_bytes);
      const Moments moments = StatisticsOf(backend, of(batch), rows);
      for (size_t c = 0; c < moments.size(); ++c) {
        const double variance = whole[c].BiasedVariance();
        const double mean_error = moments[c].mean - whole[c].mean;
        const double variance_error = moments[c].UnbiasedVariance() / variance - 1;
        error.mean += mean_error * mean_error / variance;
        error.variance += variance_error * variance_error;
      }
    }
    const auto count = static_cast<double>(samples / batch * channels);
    error.mean = std::sqrt(error.mean / count);
    error.variance = std::sqrt(error.variance / count);
    errors.push_back(error);
  }
  return errors;
}

}  // namespace normd::accuracy
