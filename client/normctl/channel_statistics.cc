#include "client/normctl/channel_statistics.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/args.h"
#include "client/cpp/sample_moments.h"
#include "client/cpp/tensor.h"
#include "client/normctl/json_message.h"
#include "client/normctl/session_message.h"

namespace normd::client {
namespace {

constexpr double kDefaultEpsilon = 1e-5;  // of BatchNorm and InstanceNorm

template <typename T>
std::vector<T> Chosen(const std::vector<T>& values, const std::vector<size_t>& channels) {
  std::vector<T> out;
  out.reserve(channels.size());
  for (const size_t channel : channels) out.push_back(values[channel]);
  return out;
}

nlohmann::json NumbersJson(const std::vector<double>& values) {
  nlohmann::json out = nlohmann::json::array();
  for (const double value : values) out.push_back(NumberJson(value));
  return out;
}

double EpsilonOf(const v1::NormSpec& spec) {
  if (spec.has_instance_norm()) return spec.instance_norm().has_eps() ? spec.instance_norm().eps() : kDefaultEpsilon;
  return spec.batch_norm().has_eps() ? spec.batch_norm().eps() : kDefaultEpsilon;
}

}  // namespace

std::string ChannelStatistics::NameOf(size_t channel) const {
  return names.empty() ? absl::StrCat(channel) : names[channel];
}

std::vector<double> ChannelStatistics::StandardDeviations() const {
  std::vector<double> out;
  for (const double value : var) out.push_back(std::sqrt(value));
  return out;
}

absl::StatusOr<ChannelStatistics> StatisticsOf(const v1::Session& session) {
  const v1::RunningState& state = session.state();
  if (!state.has_count()) {
    return absl::FailedPreconditionError(
        absl::StrCat(session.name(),
                     " does not count samples: normctl stats fit makes a session that does, and normctl "
                     "session create batch-norm --weighting samples"));
  }
  ChannelStatistics out;
  out.session = session.name();
  out.version = session.version();
  out.digest = session.digest();
  out.frozen = session.frozen();
  out.epsilon = EpsilonOf(session.spec());
  out.names.assign(session.channel_names().begin(), session.channel_names().end());
  absl::StatusOr<SampleMoments> samples = SampleMoments::FromState(state);
  if (!samples.ok()) return samples.status();
  // The session's own variance, which knows its prior and whether it is unbiased.
  const absl::StatusOr<Tensor> var = Tensor::FromProto(state.var());
  if (!var.ok()) return var.status();
  out.var = var->ToDoubles();
  if (out.var.size() != samples->channels()) return absl::InternalError("the tensors of a state differ in length");
  out.count = std::move(samples->count);
  out.mean = std::move(samples->mean);
  out.min = std::move(samples->min);
  out.max = std::move(samples->max);
  return out;
}

absl::StatusOr<ChannelStatistics> ReadStatistics(Client& client, absl::string_view name) {
  const absl::StatusOr<v1::Session> session = client.GetSession(SessionName(name), v1::SESSION_VIEW_FULL);
  if (!session.ok()) return session.status();
  return StatisticsOf(*session);
}

absl::StatusOr<ChannelStatistics> ChooseChannels(const ChannelStatistics& statistics,
                                                 const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (size_t c = 0; c < statistics.channels(); ++c) known.push_back(statistics.NameOf(c));
  std::vector<size_t> channels;
  for (const std::string& name : names) {
    const auto found = std::find(known.begin(), known.end(), name);
    if (found == known.end()) return UnknownNameError("channel", name, known);
    channels.push_back(static_cast<size_t>(found - known.begin()));
  }
  ChannelStatistics out = statistics;
  if (!out.names.empty()) out.names = Chosen(out.names, channels);
  for (std::vector<double>* const values : {&out.count, &out.mean, &out.var, &out.min, &out.max}) {
    *values = Chosen(*values, channels);
  }
  return out;
}

nlohmann::json StatisticsJson(const ChannelStatistics& statistics) {
  nlohmann::json out = {{"session", statistics.session},
                        {"version", statistics.version},
                        {"digest", statistics.digest},
                        {"frozen", statistics.frozen},
                        {"eps", statistics.epsilon},
                        {"count", NumbersJson(statistics.count)},
                        {"mean", NumbersJson(statistics.mean)},
                        {"var", NumbersJson(statistics.var)},
                        {"std", NumbersJson(statistics.StandardDeviations())},
                        {"min", NumbersJson(statistics.min)},
                        {"max", NumbersJson(statistics.max)}};
  if (!statistics.names.empty()) out["channel_names"] = statistics.names;
  return out;
}

}  // namespace normd::client
