// When the calls of an open loop are meant to be sent: a Poisson process or a fixed beat, from a seed, whatever the
// server does. The same seed gives the same times on every machine.
// In the path: the start of an open-loop measurement (load.h). Not thread-safe: its user holds a lock.
#ifndef NORMD_CLIENT_NORMLOAD_ARRIVALS_H_
#define NORMD_CLIENT_NORMLOAD_ARRIVALS_H_

#include <cstdint>
#include <random>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace normd::client {

enum class ArrivalKind { kPoisson, kConstant };

absl::StatusOr<ArrivalKind> ParseArrivalKind(absl::string_view name);  // UsageError for other words
absl::string_view ArrivalName(ArrivalKind kind);

// Uniform in [0, 1), 53 bits. (What std's distributions do with an engine is left to each library.)
double Uniform(std::mt19937_64& random);

class Arrivals {
 public:
  // `rate`: calls a second. REQUIRES: positive.
  Arrivals(ArrivalKind kind, double rate, uint64_t seed) : kind_(kind), rate_(rate), random_(seed) {}

  // When the next call is due, from the start. Never falls.
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
