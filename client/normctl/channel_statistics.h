// The statistics of a session that counts samples, channel by channel, as the commands of `normctl stats` show, compare
// and export them. In the path: between GetSession and the commands. Pure functions.
#ifndef NORMD_CLIENT_NORMCTL_CHANNEL_STATISTICS_H_
#define NORMD_CLIENT_NORMCTL_CHANNEL_STATISTICS_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cpp/client.h"
#include "normd/v1/sessions.pb.h"

namespace normd::client {

// Vectors of [C]. `names` is empty if the channels have no names.
struct ChannelStatistics {
  std::string session;  // "sessions/observations"
  uint64_t version = 0;
  std::string digest;
  bool frozen = false;
  double epsilon = 0;
  std::vector<std::string> names;
  std::vector<double> count, mean, var, min, max;

  size_t channels() const { return count.size(); }
  // "speed", or "3" for a channel without a name.
  std::string NameOf(size_t channel) const;
  std::vector<double> StandardDeviations() const;  // sqrt(var)
};

// Those of `session`, which is in SESSION_VIEW_FULL. FAILED_PRECONDITION if it does not count samples.
absl::StatusOr<ChannelStatistics> StatisticsOf(const v1::Session& session);
// Reads them from the server.
absl::StatusOr<ChannelStatistics> ReadStatistics(Client& client, absl::string_view name);

// The channels that are called `names` ("2" without names), in this order. INVALID_ARGUMENT for a name that is missing.
absl::StatusOr<ChannelStatistics> ChooseChannels(const ChannelStatistics& statistics,
                                                 const std::vector<std::string>& names);

// Everything, as --json shows it: a value a channel, NumberJson.
nlohmann::json StatisticsJson(const ChannelStatistics& statistics);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_CHANNEL_STATISTICS_H_
