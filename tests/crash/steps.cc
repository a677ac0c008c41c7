#include "tests/crash/steps.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <tuple>

namespace normd::crash {

namespace {

// splitmix64 (Steele, Lea, Flood 2014).
uint64_t Mix(uint64_t h) {
  h += 0x9e3779b97f4a7c15;
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
  h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
  return h ^ (h >> 31);
}

uint64_t SeedOf(const StepKey& step) { return Mix(Mix(Mix(step.session) ^ step.client) ^ step.sequence); }

std::string Hex(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%a", value);
  return text;
}

bool IsNear(double expected, double actual, double tolerance) {
  return std::abs(actual - expected) <= tolerance * std::max(1.0, std::abs(expected));
}

// Tolerance 0: bit for bit.
std::string Differing(const char* name, const std::vector<double>& expected, const std::vector<double>& actual,
                      double tolerance = 0) {
  if (expected.size() != actual.size()) {
    return std::string(name) + " has " + std::to_string(actual.size()) + " values, not " +
           std::to_string(expected.size());
  }
  for (size_t c = 0; c < expected.size(); ++c) {
    if (std::bit_cast<uint64_t>(expected[c]) == std::bit_cast<uint64_t>(actual[c])) continue;
    if (tolerance > 0 && IsNear(expected[c], actual[c], tolerance)) continue;
    return std::string(name) + "[" + std::to_string(c) + "] is " + Hex(actual[c]) + ", not " + Hex(expected[c]);
  }
  return "";
}

void Count(const StepKey& step, Content* content) {
  const auto channels = content->sums.size();
  const std::vector<float> x = StepValues(step);
  for (size_t i = 0; i < x.size(); ++i) {
    SampleSums& sums = content->sums[i % channels];
    const auto value = static_cast<uint64_t>(x[i]);
    ++sums.count;
    sums.sum += value;
    sums.squares += value * value;
  }
  const StepExtremes extremes = ExtremesOf(step);
  for (size_t c = 0; c < channels; ++c) {
    const SampleSums& sums = content->sums[c];
    const auto count = static_cast<double>(sums.count);
    content->count[c] = count;
    content->mean[c] = static_cast<double>(sums.sum) / count;
    // Exact up to the division: below 1.6e7 samples both products fit in 64 bits.
    content->var[c] = static_cast<double>(sums.count * sums.squares - sums.sum * sums.sum) / count / count;
    content->min[c] = std::min(content->min[c], extremes.min[c]);
    content->max[c] = std::max(content->max[c], extremes.max[c]);
  }
}

// The new value of one step is rounded once. 113 bits hold nearly every numerator, and one in 10^17 of the quotients
// would be rounded the other way.
using Wide = __float128;

void ApplyWeighted(const StepKey& step, Content* content) {
  const Law law = kSessions[step.session].law;
  const Moments moments = StepMoments(step);
  const Wide batches = content->num_batches;
  // (kept * old + taken * new) / all
  const Wide all = law == Law::kCumulative ? batches : 1;
  const Wide kept = law == Law::kCumulative ? batches - 1 : 1 - kMomentumOfNew;
  const Wide taken = law == Law::kCumulative ? 1 : kMomentumOfNew;
  for (size_t c = 0; c < moments.size(); ++c) {
    const Moment& m = moments[c];
    if (law == Law::kPower) {
      const Wide v = m.m2 / m.count, phi = content->phi[c], alpha = kAlpha;
      const bool averages = content->num_batches < kWarmupSteps;
      const Wide next = averages ? (alpha * (phi * (batches - 1) + v) + (1 - alpha) * v * batches) / batches
                                 : alpha * phi + (1 - alpha) * v;
      content->phi[c] = static_cast<double>(next);
    } else {
      const Wide freedom = m.count - 1;
      content->mean[c] = static_cast<double>((kept * content->mean[c] + taken * m.mean) / all);
      content->var[c] = static_cast<double>((kept * content->var[c] * freedom + taken * m.m2) / (freedom * all));
    }
  }
}

}  // namespace

std::string ClientName(int client) { return "c" + std::to_string(client); }

std::string ToString(const StepKey& step) {
  return std::string(kSessions[step.session].id) + "/" + ClientName(step.client) + "/" + std::to_string(step.sequence);
}

uint64_t OldStepAfter(uint64_t sequence) {
  constexpr uint64_t kOneIn = 8;
  constexpr uint64_t kOldest = 15;  // one less than the replay window, which counts the newest
  const uint64_t age = 1 + Mix(sequence) % kOldest;
  return sequence % kOneIn == 0 && sequence > age ? sequence - age : 0;
}

int64_t RowsOf(const StepKey& step) {
  if (kSessions[step.session].law != Law::kSamples) return kRows;
  return 1 + static_cast<int64_t>(Mix(SeedOf(step)) % kMaxSamples);
}

std::vector<float> StepValues(const StepKey& step) {
  const uint64_t seed = SeedOf(step);
  std::vector<float> x(static_cast<size_t>(RowsOf(step) * kSessions[step.session].channels));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(Mix(seed ^ i) & 0xff);
  return x;
}

Moments StepMoments(const StepKey& step) {
  const SessionPlan& plan = kSessions[step.session];
  const std::vector<float> x = StepValues(step);
  const int64_t rows = RowsOf(step);
  Moments moments(static_cast<size_t>(plan.channels));
  for (size_t c = 0; c < moments.size(); ++c) {
    const auto value = [&](int64_t row) -> double { return x[static_cast<size_t>(row * plan.channels) + c]; };
    Moment& m = moments[c];
    m.count = static_cast<double>(rows);
    if (plan.law != Law::kPower) {
      for (int64_t row = 0; row < rows; ++row) m.mean += value(row);
      m.mean /= m.count;
    }
    for (int64_t row = 0; row < rows; ++row) m.m2 += (value(row) - m.mean) * (value(row) - m.mean);
  }
  return moments;
}

StepExtremes ExtremesOf(const StepKey& step) {
  const std::vector<float> x = StepValues(step);
  const auto channels = static_cast<size_t>(kSessions[step.session].channels);
  StepExtremes extremes = {.min = std::vector<double>(x.begin(), x.begin() + channels), .max = {}};
  extremes.max = extremes.min;
  for (size_t i = channels; i < x.size(); ++i) {
    const double value = x[i];
    extremes.min[i % channels] = std::min(extremes.min[i % channels], value);
    extremes.max[i % channels] = std::max(extremes.max[i % channels], value);
  }
  return extremes;
}

Content InitialContent(int session) {
  const SessionPlan& plan = kSessions[session];
  const auto channels = static_cast<size_t>(plan.channels);
  Content content;
  if (plan.law == Law::kPower) {
    content.phi.assign(channels, 1.0);
  } else {
    content.mean.assign(channels, 0.0);
    content.var.assign(channels, 1.0);
  }
  if (plan.law == Law::kSamples) {
    content.sums.resize(channels);
    content.count.assign(channels, 0.0);
    content.min.assign(channels, std::numeric_limits<double>::infinity());
    content.max.assign(channels, -std::numeric_limits<double>::infinity());
  }
  return content;
}

void Apply(const StepKey& step, Content* content) {
  ++content->num_batches;
  content->phi_before = content->phi;
  if (kSessions[step.session].law == Law::kSamples) return Count(step, content);
  ApplyWeighted(step, content);
}

std::string Difference(const Content& expected, const Content& actual) {
  if (expected.num_batches != actual.num_batches) {
    return "num_batches is " + std::to_string(actual.num_batches) + ", not " + std::to_string(expected.num_batches);
  }
  const double tolerance = expected.sums.empty() ? 0 : kSampleTolerance;
  for (const auto& [name, want, have, allowed] :
       {std::tuple("count", &expected.count, &actual.count, 0.0), std::tuple("min", &expected.min, &actual.min, 0.0),
        std::tuple("max", &expected.max, &actual.max, 0.0), std::tuple("mean", &expected.mean, &actual.mean, tolerance),
        std::tuple("var", &expected.var, &actual.var, tolerance), std::tuple("phi", &expected.phi, &actual.phi, 0.0)}) {
    if (std::string difference = Differing(name, *want, *have, allowed); !difference.empty()) return difference;
  }
  if (!actual.phi_before.has_value()) return "";
  return Differing("phi_before", expected.phi_before.value_or(std::vector<double>()), *actual.phi_before);
}

}  // namespace normd::crash
