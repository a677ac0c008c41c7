#include "tests/crash/steps.h"

#include <bit>
#include <cstdio>
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

std::string Hex(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%a", value);
  return text;
}

std::string Differing(const char* name, const std::vector<double>& expected, const std::vector<double>& actual) {
  if (expected.size() != actual.size()) {
    return std::string(name) + " has " + std::to_string(actual.size()) + " values, not " +
           std::to_string(expected.size());
  }
  for (size_t c = 0; c < expected.size(); ++c) {
    if (std::bit_cast<uint64_t>(expected[c]) == std::bit_cast<uint64_t>(actual[c])) continue;
    return std::string(name) + "[" + std::to_string(c) + "] is " + Hex(actual[c]) + ", not " + Hex(expected[c]);
  }
  return "";
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

std::vector<float> StepValues(const StepKey& step) {
  const int64_t channels = kSessions[step.session].channels;
  const uint64_t seed = Mix(Mix(Mix(step.session) ^ step.client) ^ step.sequence);
  std::vector<float> x(static_cast<size_t>(kRows * channels));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(Mix(seed ^ i) & 0xff);
  return x;
}

Moments StepMoments(const StepKey& step) {
  const SessionPlan& plan = kSessions[step.session];
  const std::vector<float> x = StepValues(step);
  Moments moments(static_cast<size_t>(plan.channels));
  for (size_t c = 0; c < moments.size(); ++c) {
    const auto value = [&](int64_t row) -> double { return x[static_cast<size_t>(row * plan.channels) + c]; };
    Moment& m = moments[c];
    m.count = kRows;
    if (plan.law != Law::kPower) {
      for (int64_t row = 0; row < kRows; ++row) m.mean += value(row) / kRows;
    }
    for (int64_t row = 0; row < kRows; ++row) m.m2 += (value(row) - m.mean) * (value(row) - m.mean);
  }
  return moments;
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
  return content;
}

void Apply(const StepKey& step, Content* content) {
  const Law law = kSessions[step.session].law;
  const Moments moments = StepMoments(step);
  const auto batches = static_cast<double>(++content->num_batches);
  content->phi_before = content->phi;
  const double a = law == Law::kCumulative ? 1 / batches : kMomentumOfNew;
  for (size_t c = 0; c < moments.size(); ++c) {
    const Moment& m = moments[c];
    if (law == Law::kPower) {
      const double v = m.m2 / m.count;
      double& phi = content->phi[c];
      if (batches < kWarmupSteps) phi = phi * (batches - 1) / batches + v / batches;
      phi = kAlpha * phi + (1 - kAlpha) * v;
    } else {
      content->mean[c] = (1 - a) * content->mean[c] + a * m.mean;
      content->var[c] = (1 - a) * content->var[c] + a * (m.m2 / (m.count - 1));
    }
  }
}

std::string Difference(const Content& expected, const Content& actual) {
  if (expected.num_batches != actual.num_batches) {
    return "num_batches is " + std::to_string(actual.num_batches) + ", not " + std::to_string(expected.num_batches);
  }
  for (const auto& [name, want, have] :
       {std::tuple("mean", &expected.mean, &actual.mean), std::tuple("var", &expected.var, &actual.var),
        std::tuple("phi", &expected.phi, &actual.phi)}) {
    if (std::string difference = Differing(name, *want, *have); !difference.empty()) return difference;
  }
  if (!actual.phi_before.has_value()) return "";
  return Differing("phi_before", expected.phi_before.value_or(std::vector<double>()), *actual.phi_before);
}

}  // namespace normd::crash
