// Shared statistics in the forms that other programs read. Pure functions.
// Every form but JSON needs numbers: FAILED_PRECONDITION, naming the channel, for a value that is not finite or not
// known, such as the smallest sample of a channel that has none.
#ifndef NORMD_CLIENT_NORMCTL_STATISTICS_FORMATS_H_
#define NORMD_CLIENT_NORMCTL_STATISTICS_FORMATS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/normctl/channel_statistics.h"

namespace normd::client {

// stats.json of LeRobot: an object of features, each with min, max, mean, std and count. Channels "KEY/0", "KEY/1" are
// the feature KEY, and a channel "KEY" is one of its own. With `key`, all channels are the feature `key`, in their
// order. FAILED_PRECONDITION for channels without names and without `key`, for a feature whose indices have gaps, and
// for one whose channels differ in count, because it has one count.
absl::StatusOr<std::string> LeRobotText(const ChannelStatistics& statistics, absl::string_view key);

// The attributes of ONNX's operator Scaler (ai.onnx.ml), which computes (x - offset) * scale in f32.
absl::StatusOr<std::string> OnnxScalerText(const ChannelStatistics& statistics);

// A header of C99 with the statistics and functions that normalise rows: y = (x - mean) / sqrt(var + eps) in double.
// Names begin with `prefix`. REQUIRES: `prefix` is an identifier of C.
absl::StatusOr<std::string> CHeaderText(const ChannelStatistics& statistics, absl::string_view prefix);

// "sessions/so100.joint" as an identifier of C: "so100_joint".
std::string CIdentifier(absl::string_view name);
bool IsCIdentifier(absl::string_view text);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_STATISTICS_FORMATS_H_
