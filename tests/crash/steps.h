// What the crash tests train: a fixed set of sessions, the values of every step as a pure function of (session, client,
// sequence), and what a session must hold after steps taken in a given order. The fold is written from the documented
// formulas and shares no code with the server; its rounding is the formulas' own, so that contents are compared bit for
// bit. The session that counts samples is compared with exact sums of all of them instead: its count and extremes bit
// for bit, its mean and variance within kSampleTolerance. In the path: both programs include it; the child and the
// clients send steps, the ledger folds them. Pure functions, safe from any thread.
#ifndef NORMD_TESTS_CRASH_STEPS_H_
#define NORMD_TESTS_CRASH_STEPS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/moments.h"

namespace normd::crash {

// How a session's state moves with a step.
enum class Law : uint8_t { kMomentum, kCumulative, kPower, kSamples };

struct SessionPlan {
  const char* id;
  Law law;
  int clients;  // each sends its steps one after another, 1, 2, 3...
  int64_t channels;
};

// Every law of steps alone, one row of several kilobytes, and two sessions of several clients, where the order of steps
// is the store's to choose: one that counts samples, and a hot one.
inline constexpr SessionPlan kSessions[] = {
    {"momentum", Law::kMomentum, 1, 16}, {"cumulative", Law::kCumulative, 1, 16}, {"power", Law::kPower, 1, 24},
    {"wide", Law::kMomentum, 1, 512},    {"samples", Law::kSamples, 4, 16},       {"hot", Law::kMomentum, 4, 16},
};
inline constexpr int kNumSessions = static_cast<int>(sizeof(kSessions) / sizeof(kSessions[0]));

inline constexpr int64_t kRows = 8;        // values for each channel in a step: a power of two, so means are exact
inline constexpr int64_t kMaxSamples = 9;  // kSamples: a step has from 1 to so many values for each channel
inline constexpr double kSampleTolerance = 1e-12;  // relative, and absolute below 1
inline constexpr int64_t kWarmupSteps = 40;        // PowerNorm
inline constexpr double kAlpha = 0.9;              // PowerNorm
inline constexpr double kMomentumOfNew = 0.125;    // a weight whose complement is exact

struct StepKey {
  int session = 0;
  int client = 0;
  uint64_t sequence = 0;

  auto operator<=>(const StepKey&) const = default;
};

std::string ClientName(int client);    // "c0"
std::string ToString(const StepKey&);  // "hot/c2/57"

// Some steps are sent again long after they were acknowledged, as a duplicate that was late would be: the sequence of
// the one to send after `sequence`, within the outcomes that a store keeps; 0: none.
uint64_t OldStepAfter(uint64_t sequence);

// The values that the step has for each channel: kRows, unless the session counts samples.
int64_t RowsOf(const StepKey& step);
// x of the step, [RowsOf(step), channels]: whole numbers from 0 to 255, so that no sum of them or of their squares
// rounds.
std::vector<float> StepValues(const StepKey& step);
// The same as moments: about the mean, or about zero for PowerNorm.
Moments StepMoments(const StepKey& step);
// The smallest and the largest value of each channel.
struct StepExtremes {
  std::vector<double> min, max;
};
StepExtremes ExtremesOf(const StepKey& step);

// Whole numbers, so that no sum of samples rounds.
struct SampleSums {
  uint64_t count = 0, sum = 0, squares = 0;
};

// The running state of one session.
struct Content {
  std::vector<double> mean, var;                  // all but kPower
  std::vector<double> phi;                        // kPower
  std::optional<std::vector<double>> phi_before;  // phi before the last step; nothing: it was not asked for
  std::vector<double> count, min, max;            // kSamples
  std::vector<SampleSums> sums;                   // kSamples, of what is expected: what the other fields follow from
  uint64_t num_batches = 0;
};

Content InitialContent(int session);
void Apply(const StepKey& step, Content* content);

// Empty when the bits are equal, or as close as samples must be, else what differs. phi_before is compared where
// `actual` tells it.
std::string Difference(const Content& expected, const Content& actual);

}  // namespace normd::crash

#endif  // NORMD_TESTS_CRASH_STEPS_H_
