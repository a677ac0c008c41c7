// The times at which the calls of an open loop are due: a Poisson process or a fixed beat, from a seed, whatever the
// server does. The same seed gives the same times on every machine.
// In the path: at the start of an open-loop measurement (load.h). Threads: not thread-safe; its user holds a lock.
#ifndef NORMD_CLIENT_NORMLOAD_ARRIVALS_H_
#define NORMD_CLIENT_NORMLOAD_ARRIVALS_H_

#include <cstdint>
#include <random>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace normd::client {

enum class ArrivalKind { kPoisson, kConstant };

// UsageError for unknown names.
absl::StatusOr<ArrivalKind> ParseArrivalKind(absl::string_view name);
absl::string_view ArrivalName(ArrivalKind kind);

// A uniform number in [0, 1) with 53 random bits. std's distributions would differ between standard libraries.
double Uniform(std::mt19937_64& random);

class Arrivals {
 public:
  // `rate` is in calls a second. REQUIRES: `rate` is positive.
  Arrivals(ArrivalKind kind, double rate, uint64_t seed) : kind_(kind), rate_(rate), random_(seed) {}

  // The time from the start at which the next call is due. Never decreases.
  absl::Duration Next();

 private:
  ArrivalKind kind_;
  double rate_;
  std::mt19937_64 random_;
  int64_t count_ = 0;
  double seconds_ = 0;
};

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMLOAD_ARRIVALS_H_
