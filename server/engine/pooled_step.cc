#include "server/engine/pooled_step.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "kernels/exact_sums/rounded_step.h"
#include "kernels/methods.h"
#include "server/base/error_reasons.h"
#include "server/session/sample_statistics.h"

namespace normd {

namespace {

// A byte of exact sums takes as long to check and to merge as so many bytes of the moments of one part, which are moved
// in less than 1 ns: a group of 128 or 816 bytes takes up to 2 us.
constexpr int64_t kWorkOfExact = 8;
// The same of moments that are pooled: 6 ns a byte where pairs of f64 decide, up to 100 ns where integers have to.
constexpr int64_t kWorkOfPooled = 32;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

absl::Status CheckHasState(const Session& session) {
  if (session.spec.HasState()) return absl::OkStatus();
  const std::string_view method = Info(session.spec.method()).name;
  return MakeError(KernelReason("NOT_ALLOWED"),
                   {.field = "session", .value = Concat("a session of ", method), .limit = "one with running state"},
                   Concat("is of ", method, ", which has no running state; it must be one with running state"));
}

// Whether two values are the same bits, all NaN alike.
bool IsSame(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) || (std::isnan(a) && std::isnan(b));
}

// Checks that the moments of part `i` are the nearest to its exact sums.
absl::Status CheckAgreement(const MomentsPart& part, size_t i) {
  const Moments nearest = part.details.exact->NearestMoments();
  if (nearest.size() != part.moments.size()) {
    return ParameterLengthError(Concat("moments[", i, "].exact"), static_cast<int64_t>(nearest.size()),
                                static_cast<int64_t>(part.moments.size()));
  }
  constexpr std::pair<std::string_view, double Moment::*> kMembers[] = {
      {"count", &Moment::count}, {"mean", &Moment::mean}, {"m2", &Moment::m2}};
  for (size_t c = 0; c < nearest.size(); ++c) {
    for (const auto& [name, member] : kMembers) {
      if (IsSame(part.moments[c].*member, nearest[c].*member)) continue;
      return OutOfRangeError(Concat("moments[", i, "].", name, "[", c, "]"), NumberText(part.moments[c].*member),
                             Concat(NumberText(nearest[c].*member), ", as moments[", i, "].exact says"),
                             ServerReason("MOMENTS_OUT_OF_RANGE"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckExact(const Session& session, const std::vector<MomentsPart>& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].details.exact == nullptr) continue;
    if (TraitsOf(session.spec.method()).state == StateKind::kQuadraticMean) {
      return NotAllowedError(Concat("moments[", i, "].exact"),
                             "power_norm has statistics of scaled elements, which are rounded");
    }
    if (!parts[i].details.samples.empty()) {
      return NotAllowedError(Concat("moments[", i, "].samples"), "exact sums have no weights");
    }
    NORMD_RETURN_IF_ERROR(CheckAgreement(parts[i], i));
  }
  return absl::OkStatus();
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

// The samples of all parts, empty if none gives them. The parts are one batch: none decays another. Rounded once, as
// the counts are: so no order of the parts matters, and there are never fewer samples than their count.
std::vector<double> PoolSamples(const std::vector<MomentsPart>& parts) {
  const auto has_none = [](const MomentsPart& part) { return part.details.samples.empty(); };
  if (std::all_of(parts.begin(), parts.end(), has_none)) return {};
  std::vector<double> pooled, of_channel(parts.size());
  for (size_t c = 0; c < parts.front().moments.size(); ++c) {
    for (size_t i = 0; i < parts.size(); ++i) {
      of_channel[i] = SamplesOf(parts[i].moments, parts[i].details.samples, c);
    }
    pooled.push_back(NearestSum(of_channel));
  }
  return pooled;
}

absl::Status CheckLengths(Method method, const std::vector<MomentsPart>& parts) {
  if (TraitsOf(method).steps_by_sample) return absl::OkStatus();  // parts are of as many instances as they like
  const auto want = static_cast<int64_t>(parts.front().moments.size());
  for (size_t i = 1; i < parts.size(); ++i) {
    const auto got = static_cast<int64_t>(parts[i].moments.size());
    if (got != want) return ParameterLengthError(Concat("moments[", i, "]"), got, want);
  }
  return absl::OkStatus();
}

// The exact sums of all parts; null unless every part has some. REQUIRES: CheckExact and CheckLengths returned OK.
absl::StatusOr<std::shared_ptr<const GroupSums>> PoolExact(Method method, const std::vector<MomentsPart>& parts) {
  const auto has_none = [](const MomentsPart& part) { return part.details.exact == nullptr; };
  if (std::any_of(parts.begin(), parts.end(), has_none)) return nullptr;
  if (parts.size() == 1) return parts.front().details.exact;
  auto pooled = std::make_shared<GroupSums>(*parts.front().details.exact);
  for (size_t i = 1; i < parts.size(); ++i) {
    if (TraitsOf(method).steps_by_sample) {
      pooled->Append(*parts[i].details.exact);
      continue;
    }
    const absl::Status merged = pooled->Merge(*parts[i].details.exact);
    if (!merged.ok()) return PrefixField(merged, Concat("moments[", i, "].exact"));
  }
  return pooled;
}

// REQUIRES: at least two parts, and CheckLengths returned OK.
Moments PoolMoments(Method method, const std::vector<MomentsPart>& parts) {
  Moments pooled;
  if (TraitsOf(method).steps_by_sample) {
    for (const MomentsPart& part : parts) pooled.insert(pooled.end(), part.moments.begin(), part.moments.end());
    return pooled;
  }
  Moments of_channel(parts.size());
  for (size_t c = 0; c < parts.front().moments.size(); ++c) {
    for (size_t i = 0; i < parts.size(); ++i) of_channel[i] = parts[i].moments[c];
    pooled.push_back(NearestPool(of_channel));
  }
  return pooled;
}

// REQUIRES: CheckLengths returned OK.
MomentsPart Pool(Method method, std::vector<MomentsPart> parts, std::shared_ptr<const GroupSums> exact) {
  if (parts.size() == 1) return std::move(parts.front());
  Moments moments = exact != nullptr ? exact->NearestMoments() : PoolMoments(method, parts);
  std::vector<double> samples;
  if (!TraitsOf(method).steps_by_sample) samples = PoolSamples(parts);
  MomentsPart pooled = std::move(parts.front());
  pooled.details.exact = std::move(exact);
  for (size_t i = 1; i < parts.size() && !TraitsOf(method).steps_by_sample; ++i) {
    MergeExtremes(parts[i], &pooled);
    for (size_t c = 0; c < moments.size(); ++c) pooled.moments[c].count += parts[i].moments[c].count;
  }
  pooled.moments = std::move(moments);
  if (!TraitsOf(method).steps_by_sample) pooled.details.samples = std::move(samples);
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
  if (details.exact != nullptr) details.exact = std::make_shared<const GroupSums>(details.exact->InOrder(places));
  for (std::vector<double>* const values : {&details.extremes.min, &details.extremes.max, &details.samples}) {
    if (!values->empty()) *values = InOrder(*values, places);
  }
  return absl::OkStatus();
}

}  // namespace

int64_t WorkOf(const std::vector<MomentsPart>& parts) {
  int64_t bytes = 0;
  const int64_t work_of_moments = parts.size() > 1 ? kWorkOfPooled : 1;
  for (const MomentsPart& part : parts) {
    const size_t details = 2 * part.details.extremes.min.size() + part.details.samples.size();
    bytes += work_of_moments * static_cast<int64_t>(part.moments.size() * sizeof(Moment) + details * sizeof(double));
    if (part.details.exact != nullptr) bytes += kWorkOfExact * part.details.exact->size_bytes();
  }
  return bytes;
}

absl::StatusOr<StateUpdate> UpdateOf(const Session& session, PooledStep step) {
  NORMD_RETURN_IF_ERROR(CheckHasState(session));
  if (!session.spec.running().CountsSamples()) NORMD_RETURN_IF_ERROR(CheckWholeCounts(step.parts));
  const Method method = session.spec.method();
  NORMD_RETURN_IF_ERROR(CheckLengths(method, step.parts));
  NORMD_RETURN_IF_ERROR(CheckExact(session, step.parts));
  NORMD_ASSIGN_OR_RETURN(std::shared_ptr<const GroupSums> exact, PoolExact(method, step.parts));
  MomentsPart pooled = Pool(method, std::move(step.parts), std::move(exact));
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
