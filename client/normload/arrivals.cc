#include "client/normload/arrivals.h"

#include <cmath>

#include "client/cli/args.h"

namespace normd::client {

absl::StatusOr<ArrivalKind> ParseArrivalKind(absl::string_view name) {
  if (name == "poisson") return ArrivalKind::kPoisson;
  if (name == "constant") return ArrivalKind::kConstant;
  return BadValueError("arrivals", name, "poisson or constant");
}

absl::string_view ArrivalName(ArrivalKind kind) { return kind == ArrivalKind::kPoisson ? "poisson" : "constant"; }

double Uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

absl::Duration Arrivals::Next() {
  // Computed from a count, not summed, so that the beat does not drift.
  if (kind_ == ArrivalKind::kConstant) return absl::Seconds(static_cast<double>(count_++) / rate_);
  seconds_ += -std::log1p(-Uniform(random_)) / rate_;
  return absl::Seconds(seconds_);
}

}  // namespace normd::client
