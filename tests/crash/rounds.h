// What the rounds of kills have in common, whatever they kill.
// In the path: tests/crash, see parent.cc.
#ifndef NORMD_TESTS_CRASH_ROUNDS_H_
#define NORMD_TESTS_CRASH_ROUNDS_H_

#include <random>

#include "absl/time/time.h"

namespace normd::crash {

// Far beyond what anything here takes; what needs longer hangs.
inline constexpr absl::Duration kPatience = absl::Seconds(60);

// How long a process is left to live: between the two, at random.
inline absl::Duration Draw(int min_ms, int max_ms, std::mt19937_64* random) {
  return absl::Microseconds(std::uniform_int_distribution<int>(min_ms * 1000, max_ms * 1000)(*random));
}

}  // namespace normd::crash

#endif  // NORMD_TESTS_CRASH_ROUNDS_H_
