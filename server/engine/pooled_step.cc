#include "server/engine/pooled_step.h"

#include <cmath>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "kernels/methods.h"
#include "server/base/error_reasons.h"
#include "server/session/sample_statistics.h"

namespace normd {

namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

absl::Status CheckHasState(const Session& session) {
  if (session.spec.HasState()) return absl::OkStatus();
  const std::string_view method = Info(session.spec.method()).name;
  return MakeError(KernelReason("NOT_ALLOWED"),
                   {.field = "session", .value = Concat("a session of ", method), .limit = "one with running state"},
                   Concat("is of ", method, ", which has no running state; it must be one with running state"));
}

absl::Status CheckWholeCounts(const std::vector<MomentsPart>& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const Moment& moment : parts[i].moments) {
      if (moment.count == std::floor(moment.count)) continue;
      return OutOfRangeError(Concat("moments[", i, "].count"), NumberText(moment.count), "a whole number, at least 0",
                             ServerReason("COUNT_OUT_OF_RANGE"));
    }
  }
  return absl::OkStatus();
}

// A side without samples has no extremes; one that has samples but not their extremes makes those of both unknown.
double PooledExtreme(const Moment& moment, const std::vector<double>& values, size_t c, double none) {
  if (moment.count == 0) return none;
  return values.empty() ? kUnknown : values[c];
}

void MergeExtremes(const MomentsPart& part, MomentsPart* pooled) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Extremes& later = part.details.extremes;
  Extremes& extremes = pooled->details.extremes;
  if (later.empty() && extremes.empty()) return;
  Extremes merged;
  for (size_t c = 0; c < part.moments.size(); ++c) {
    const double min1 = PooledExtreme(pooled->moments[c], extremes.min, c, kInfinity);
    const double min2 = PooledExtreme(part.moments[c], later.min, c, kInfinity);
    const double max1 = PooledExtreme(pooled->moments[c], extremes.max, c, -kInfinity);
    const double max2 = PooledExtreme(part.moments[c], later.max, c, -kInfinity);
    merged.min.push_back(LeastOf(min1, min2));
    merged.max.push_back(GreatestOf(max1, max2));
  }
  extremes = std::move(merged);
}

// The parts are one batch: none decays another.
void AddSamples(const MomentsPart& part, MomentsPart* pooled) {
  const std::vector<double>& later = part.details.samples;
  std::vector<double>& samples = pooled->details.samples;
  if (later.empty() && samples.empty()) return;
  std::vector<double> sums;
  for (size_t c = 0; c < part.moments.size(); ++c) {
    sums.push_back(SamplesOf(pooled->moments, samples, c) + SamplesOf(part.moments, later, c));
  }
  samples = std::move(sums);
}

absl::StatusOr<MomentsPart> Pool(Method method, std::vector<MomentsPart> parts) {
  MomentsPart pooled = std::move(parts.front());
  for (size_t i = 1; i < parts.size(); ++i) {
    const Moments& moments = parts[i].moments;
    if (TraitsOf(method).steps_by_sample) {
      pooled.moments.insert(pooled.moments.end(), moments.begin(), moments.end());
      continue;
    }
    if (moments.size() != pooled.moments.size()) {
      return ParameterLengthError(Concat("moments[", i, "]"), static_cast<int64_t>(moments.size()),
                                  static_cast<int64_t>(pooled.moments.size()));
    }
    MergeExtremes(parts[i], &pooled);
    AddSamples(parts[i], &pooled);
    for (size_t c = 0; c < moments.size(); ++c) pooled.moments[c] = Merge(pooled.moments[c], moments[c]);
  }
  return pooled;
}

absl::Status ChannelNameError(std::string_view field, const std::string& name, std::string_view limit) {
  return FormError(field, name, limit, ServerReason("CHANNEL_NAME_FORM"));
}

// Where the values of each channel of the session stand in a list of channels in the order of `names`.
absl::StatusOr<std::vector<size_t>> PlacesOf(const Session& session, const std::vector<std::string>& names) {
  if (session.channel_names == nullptr) {
    return NotAllowedError("channel_names", "the session's channels have no names");
  }
  std::unordered_map<std::string_view, size_t> places;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!places.emplace(names[i], i).second) {
      return ChannelNameError(Concat("channel_names[", i, "]"), names[i], "each name once");
    }
  }
  std::vector<size_t> order;
  for (const std::string& name : *session.channel_names) {
    const auto place = places.find(name);
    if (place == places.end()) return MissingError("channel_names", Concat("the session's channel \"", name, "\""));
    order.push_back(place->second);
    places.erase(place);
  }
  if (places.empty()) return order;
  const size_t unknown = places.begin()->second;
  return ChannelNameError(Concat("channel_names[", unknown, "]"), names[unknown], "a channel of the session");
}

template <typename T>
std::vector<T> InOrder(const std::vector<T>& values, const std::vector<size_t>& places) {
  std::vector<T> ordered;
  ordered.reserve(places.size());
  for (const size_t place : places) ordered.push_back(values[place]);
  return ordered;
}

absl::Status PutInOrder(const Session& session, const std::vector<std::string>& names, MomentsPart* pooled) {
  if (names.empty()) return absl::OkStatus();
  if (pooled->moments.size() != names.size()) {
    return ParameterLengthError("channel_names", static_cast<int64_t>(names.size()),
                                static_cast<int64_t>(pooled->moments.size()));
  }
  NORMD_ASSIGN_OR_RETURN(const std::vector<size_t> places, PlacesOf(session, names));
  pooled->moments = InOrder(pooled->moments, places);
  SampleDetails& details = pooled->details;
  for (std::vector<double>* const values : {&details.extremes.min, &details.extremes.max, &details.samples}) {
    if (!values->empty()) *values = InOrder(*values, places);
  }
  return absl::OkStatus();
}

}  // namespace

int64_t BytesOf(const std::vector<MomentsPart>& parts) {
  int64_t bytes = 0;
  for (const MomentsPart& part : parts) {
    const size_t details = 2 * part.details.extremes.min.size() + part.details.samples.size();
    bytes += static_cast<int64_t>(part.moments.size() * sizeof(Moment) + details * sizeof(double));
  }
  return bytes;
}

absl::StatusOr<StateUpdate> UpdateOf(const Session& session, PooledStep step) {
  NORMD_RETURN_IF_ERROR(CheckHasState(session));
  if (!session.spec.running().CountsSamples()) NORMD_RETURN_IF_ERROR(CheckWholeCounts(step.parts));
  NORMD_ASSIGN_OR_RETURN(MomentsPart pooled, Pool(session.spec.method(), std::move(step.parts)));
  NORMD_RETURN_IF_ERROR(PutInOrder(session, step.channel_names, &pooled));
  return StateUpdate{.id = std::move(step.session),
                     .uid = session.uid,
                     .moments = std::move(pooled.moments),
                     .details = std::move(pooled.details),
                     .step = std::move(step.step),
                     .expected_version = step.expected_version,
                     .moments_hash = {},
                     .cancelled = std::move(step.cancelled)};
}

}  // namespace normd
