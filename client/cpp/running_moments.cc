#include "client/cpp/running_moments.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/cpp/moments_sender.h"
#include "client/cpp/sample_moments.h"

namespace normd {
namespace {

using client::KnownState;
using client::SampleMoments;

constexpr double kPriorVariance = 1;  // the contract's default, which the sessions of this class have

absl::Status Refused(absl::string_view field, const absl::AlphaNum& value, absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, "; it must be ", wanted));
}

absl::Status CheckMomentsOptions(int64_t channels, const RunningMomentsOptions& options) {
  if (channels < 1) return Refused("channels", channels, "at least 1");
  const size_t names = options.channel_names.size();
  if (names != 0 && names != static_cast<size_t>(channels)) {
    return Refused("channel_names", absl::StrCat(names, " names"), absl::StrCat(channels, " names, or none"));
  }
  if (options.clip.has_value() && !(*options.clip > 0)) return Refused("clip", *options.clip, "above 0");
  if (!(options.epsilon >= 0)) return Refused("epsilon", options.epsilon, "at least 0");
  if (options.flush_samples < 1) return Refused("flush_samples", options.flush_samples, "at least 1");
  for (const auto& [field, duration] :
       {std::pair("flush_interval", options.flush_interval), std::pair("call_deadline", options.call_deadline)}) {
    if (duration <= absl::ZeroDuration()) return Refused(field, absl::FormatDuration(duration), "above 0");
  }
  return absl::OkStatus();
}

// The session that Open creates: normd.stats of Python makes the same.
v1::Session WantedSession(int64_t channels, const RunningMomentsOptions& options) {
  v1::Session session;
  v1::BatchNorm& batch_norm = *session.mutable_spec()->mutable_batch_norm();
  batch_norm.set_eps(options.epsilon);
  batch_norm.set_layout(v1::LAYOUT_CHANNELS_LAST);
  batch_norm.mutable_running()->set_weighting(v1::WEIGHTING_SAMPLES);
  batch_norm.mutable_running()->set_prior_count(options.prior_count);
  batch_norm.mutable_running()->set_decay(options.decay);
  if (options.max_count.has_value()) batch_norm.mutable_running()->set_max_count(*options.max_count);
  session.set_num_channels(channels);
  session.mutable_channel_names()->Add(options.channel_names.begin(), options.channel_names.end());
  return session;
}

// The shortest text that reads back as `value`: values that differ have texts that differ.
std::string NumberText(double value) {
  char text[32];
  return {text, std::to_chars(std::begin(text), std::end(text), value).ptr};
}

struct Attribute {
  absl::string_view name;
  std::string text;
};

// What two sessions of one name must agree in, with the defaults of proto/normd/v1/norm.proto.
std::vector<Attribute> AttributesOf(const v1::Session& session) {
  const v1::BatchNorm& batch_norm = session.spec().batch_norm();
  const v1::RunningStatistics& running = batch_norm.running();
  const bool is_unbiased = running.variance() == v1::RUNNING_VARIANCE_UNBIASED;
  return {{"num_channels", absl::StrCat(session.num_channels())},
          {"channel_names", absl::StrJoin(session.channel_names(), ",")},
          {"method", session.spec().has_batch_norm() ? "batch_norm" : "another one"},
          {"weighting", running.weighting() == v1::WEIGHTING_SAMPLES ? "samples" : "steps"},
          {"eps", NumberText(batch_norm.has_eps() ? batch_norm.eps() : 1e-5)},
          {"variance", is_unbiased ? "unbiased" : "biased"},
          {"prior_count", NumberText(running.prior_count())},
          {"prior_mean", NumberText(running.prior_mean())},
          {"prior_variance", NumberText(running.has_prior_variance() ? running.prior_variance() : kPriorVariance)},
          {"decay", NumberText(running.has_decay() ? running.decay() : 1)},
          {"max_count", running.has_max_count() ? NumberText(running.max_count()) : "absent"}};
}

absl::Status CheckSameAttributes(const v1::Session& there, const v1::Session& wanted) {
  const std::vector<Attribute> theirs = AttributesOf(there), ours = AttributesOf(wanted);
  std::string differences;
  for (size_t i = 0; i < ours.size(); ++i) {
    if (theirs[i].text == ours[i].text) continue;
    absl::StrAppend(&differences, differences.empty() ? "" : "; ", ours[i].name, " is ", theirs[i].text, " there, and ",
                    ours[i].text, " here");
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(there.name(), " exists with other attributes: ", differences,
                                                    ". Delete the session, or choose another name"));
}

// Creates the session, or takes the one that exists.
absl::StatusOr<v1::Session> OpenSession(Client& client, const std::string& name, const v1::Session& wanted) {
  v1::CreateSessionRequest create;
  create.set_session_id(std::string(absl::StripPrefix(name, "sessions/")));
  *create.mutable_session() = wanted;
  const absl::Status created = client.CreateSession(create).status();
  if (!created.ok() && !absl::IsAlreadyExists(created)) return created;
  absl::StatusOr<v1::Session> session = client.GetSession(name, v1::SESSION_VIEW_FULL);
  if (!session.ok()) return session.status();
  if (absl::Status status = CheckSameAttributes(*session, wanted); !status.ok()) return status;
  return session;
}

absl::Status CheckRows(size_t values, size_t channels) {
  if (values % channels == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the rows have ", values, " values, which are no whole rows of ", channels, " channels"));
}

absl::Status CheckLength(absl::string_view field, size_t values, size_t wanted) {
  if (values == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " has ", values, " values; it must have ", wanted));
}

// to = from, each value by `function` of its channel's mean and sqrt(var + epsilon).
template <typename T, typename Function>
absl::Status EachValue(const MomentsSnapshot& snapshot, absl::Span<const T> from, absl::Span<T> to, Function function) {
  const size_t channels = snapshot.mean.size();
  if (absl::Status status = CheckRows(from.size(), channels); !status.ok()) return status;
  if (absl::Status status = CheckLength("the result", to.size(), from.size()); !status.ok()) return status;
  std::vector<double> deviation(channels);
  for (size_t c = 0; c < channels; ++c) deviation[c] = std::sqrt(snapshot.var[c] + snapshot.epsilon);
  for (size_t row = 0; row < from.size(); row += channels) {
    for (size_t c = 0; c < channels; ++c) {
      to[row + c] = static_cast<T>(function(static_cast<double>(from[row + c]), snapshot.mean[c], deviation[c]));
    }
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status NormalizeRows(const MomentsSnapshot& snapshot, absl::Span<const T> x, absl::Span<T> y) {
  const double limit = snapshot.clip.value_or(std::numeric_limits<double>::infinity());
  return EachValue(snapshot, x, y, [limit](double value, double mean, double deviation) {
    const double normalized = (value - mean) / deviation;
    // A comparison with NaN is false, so that NaN stays NaN.
    if (normalized > limit) return limit;
    return normalized < -limit ? -limit : normalized;
  });
}

template <typename T>
absl::Status DenormalizeRows(const MomentsSnapshot& snapshot, absl::Span<const T> y, absl::Span<T> x) {
  return EachValue(snapshot, y, x,
                   [](double value, double mean, double deviation) { return value * deviation + mean; });
}

}  // namespace

absl::Status MomentsSnapshot::Normalize(absl::Span<const float> x, absl::Span<float> y) const {
  return NormalizeRows(*this, x, y);
}
absl::Status MomentsSnapshot::Normalize(absl::Span<const double> x, absl::Span<double> y) const {
  return NormalizeRows(*this, x, y);
}
absl::Status MomentsSnapshot::Denormalize(absl::Span<const float> y, absl::Span<float> x) const {
  return DenormalizeRows(*this, y, x);
}
absl::Status MomentsSnapshot::Denormalize(absl::Span<const double> y, absl::Span<double> x) const {
  return DenormalizeRows(*this, y, x);
}

absl::StatusOr<std::unique_ptr<RunningMoments>> RunningMoments::Open(const Client& client, const std::string& name,
                                                                     int64_t channels, RunningMomentsOptions options) {
  if (absl::Status status = CheckMomentsOptions(channels, options); !status.ok()) return status;
  const std::string full_name = absl::StrCat("sessions/", absl::StripPrefix(name, "sessions/"));
  std::unique_ptr<Client> own = client.WithDeadline(options.call_deadline);
  const absl::StatusOr<v1::Session> session = OpenSession(*own, full_name, WantedSession(channels, options));
  if (!session.ok()) return session.status();
  absl::StatusOr<SampleMoments> samples = SampleMoments::FromState(session->state());
  if (!samples.ok()) return samples.status();
  auto sender =
      std::make_unique<client::MomentsSender>(client.WithDeadline(options.call_deadline),
                                              client::SenderOptions{.session = full_name,
                                                                    .rule = {options.decay, options.max_count},
                                                                    .flush_samples = options.flush_samples,
                                                                    .flush_interval = options.flush_interval},
                                              KnownState{*std::move(samples), session->version(), session->digest()});
  return std::unique_ptr<RunningMoments>(
      new RunningMoments(full_name, channels, std::move(options), std::move(own), std::move(sender)));
}

RunningMoments::RunningMoments(std::string name, int64_t channels, RunningMomentsOptions options,
                               std::unique_ptr<Client> client, std::unique_ptr<client::MomentsSender> sender)
    : name_(std::move(name)),
      channels_(channels),
      options_(std::move(options)),
      client_(std::move(client)),
      sender_(std::move(sender)) {}

RunningMoments::~RunningMoments() { sender_->Flush(options_.close_timeout).IgnoreError(); }

template <typename T>
absl::Status RunningMoments::UpdateRows(absl::Span<const T> rows) {
  const auto channels = static_cast<size_t>(channels_);
  if (absl::Status status = CheckRows(rows.size(), channels); !status.ok()) return status;
  return sender_->Add(SampleMoments::Of(rows, channels, client::NonFinite::kDropsChannel));
}

absl::Status RunningMoments::Update(absl::Span<const float> rows) { return UpdateRows(rows); }
absl::Status RunningMoments::Update(absl::Span<const double> rows) { return UpdateRows(rows); }

absl::Status RunningMoments::UpdateFromMoments(absl::Span<const double> mean, absl::Span<const double> var,
                                               double count) {
  const auto channels = static_cast<size_t>(channels_);
  for (const auto& [field, values] : {std::pair("mean", mean), std::pair("var", var)}) {
    if (absl::Status status = CheckLength(field, values.size(), channels); !status.ok()) return status;
  }
  if (!(count >= 0) || std::isinf(count)) return Refused("count", count, "finite and at least 0");
  if (std::any_of(var.begin(), var.end(), [](double v) { return v < 0; })) {
    return Refused("var", *std::min_element(var.begin(), var.end()), "at least 0");
  }
  SampleMoments samples = SampleMoments::None(channels);
  for (size_t c = 0; c < channels; ++c) {
    if (count == 0 || !std::isfinite(mean[c]) || !std::isfinite(var[c] * count)) continue;
    samples.count[c] = samples.samples[c] = count;
    samples.mean[c] = mean[c];
    samples.m2[c] = var[c] * count;
    samples.min[c] = samples.max[c] = std::numeric_limits<double>::quiet_NaN();
  }
  return sender_->Add(samples);
}

std::shared_ptr<const MomentsSnapshot> RunningMoments::snapshot() const {
  KnownState seen = sender_->Seen();
  auto out = std::make_shared<MomentsSnapshot>();
  out->var = seen.samples.Variance(kPriorVariance);
  out->count = std::move(seen.samples.count);
  out->mean = std::move(seen.samples.mean);
  out->min = std::move(seen.samples.min);
  out->max = std::move(seen.samples.max);
  out->version = seen.version;
  out->digest = std::move(seen.digest);
  out->epsilon = options_.epsilon;
  out->clip = options_.clip;
  return out;
}

absl::Status RunningMoments::Normalize(absl::Span<const float> x, absl::Span<float> y) const {
  return snapshot()->Normalize(x, y);
}
absl::Status RunningMoments::Normalize(absl::Span<const double> x, absl::Span<double> y) const {
  return snapshot()->Normalize(x, y);
}

absl::Status RunningMoments::Flush(absl::Duration timeout) { return sender_->Flush(timeout); }

absl::Status RunningMoments::Refresh() { return sender_->Refresh(); }

absl::StatusOr<std::shared_ptr<const MomentsSnapshot>> RunningMoments::Freeze(absl::Duration timeout) {
  if (absl::Status status = Flush(timeout); !status.ok()) return status;
  if (absl::Status status = client_->FreezeSession(name_).status(); !status.ok()) return status;
  if (absl::Status status = Refresh(); !status.ok()) return status;
  return snapshot();
}

}  // namespace normd
