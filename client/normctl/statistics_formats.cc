#include "client/normctl/statistics_formats.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "client/cli/program.h"
#include "client/cli/table.h"

namespace normd::client {
namespace {

using OrderedJson = nlohmann::ordered_json;

absl::Status Missing(absl::string_view what) { return absl::FailedPreconditionError(what); }

// The first value that is not finite, as an error.
absl::Status CheckFinite(const ChannelStatistics& statistics, absl::string_view field,
                         const std::vector<double>& values) {
  const auto wrong = std::find_if_not(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
  if (wrong == values.end()) return absl::OkStatus();
  const std::string channel = statistics.NameOf(static_cast<size_t>(wrong - values.begin()));
  return Missing(absl::StrCat("the ", field, " of channel ", channel, " of ", statistics.session, " is ", *wrong,
                              ", which this form cannot have"));
}

// The channels of each feature of LeRobot, in the order of their indices; features in the order of the channels.
struct Feature {
  std::string key;
  std::vector<size_t> channels;
};

absl::StatusOr<std::vector<Feature>> FeaturesOf(const ChannelStatistics& statistics, absl::string_view key) {
  std::vector<Feature> features;
  std::map<std::string, std::map<int64_t, size_t>> indices;  // feature -> index -> channel
  if (!key.empty()) {
    features.push_back({std::string(key), {}});
    for (size_t c = 0; c < statistics.channels(); ++c) features[0].channels.push_back(c);
    return features;
  }
  if (statistics.names.empty()) {
    return Missing(
        absl::StrCat("the channels of ", statistics.session, " have no names: --feature KEY says what they are"));
  }
  for (size_t c = 0; c < statistics.channels(); ++c) {
    const std::string& name = statistics.names[c];
    const size_t slash = name.rfind('/');
    int64_t index = 0;
    const bool has_index = slash != std::string::npos && absl::SimpleAtoi(name.substr(slash + 1), &index);
    const std::string feature = has_index ? name.substr(0, slash) : name;
    if (indices[feature].empty()) features.push_back({feature, {}});
    indices[feature][has_index ? index : 0] = c;
  }
  for (Feature& feature : features) {
    int64_t expected = 0;
    for (const auto& [index, channel] : indices[feature.key]) {
      if (index != expected++) return Missing(absl::StrCat("channel ", feature.key, "/", expected - 1, " is missing"));
      feature.channels.push_back(channel);
    }
  }
  return features;
}

OrderedJson ValuesAt(const std::vector<double>& values, const std::vector<size_t>& channels) {
  OrderedJson out = OrderedJson::array();
  for (const size_t channel : channels) out.push_back(values[channel]);
  return out;
}

// Samples are counted by whole numbers, except where a prior counts as a part of one.
OrderedJson CountJson(double count) {
  return count == std::floor(count) ? OrderedJson(static_cast<int64_t>(count)) : OrderedJson(count);
}

// A constant of C of type double, which reads back as `value`.
std::string CDouble(double value) {
  const std::string text = ShortestText(value);
  return text.find_first_of(".e") == std::string::npos ? absl::StrCat(text, ".0") : text;
}

// "{1.0, 2.5}", the initialiser of an array.
std::string Initializer(const std::vector<double>& values) {
  return absl::StrCat(
      "{", absl::StrJoin(values, ", ", [](std::string* out, double value) { absl::StrAppend(out, CDouble(value)); }),
      "}");
}

// sqrt(var + eps): what normalised values are divided by.
std::vector<double> Divisors(const ChannelStatistics& statistics) {
  std::vector<double> out;
  for (const double var : statistics.var) out.push_back(std::sqrt(var + statistics.epsilon));
  return out;
}

// The statistics that normalisation needs, and that they can be divided by.
absl::Status CheckDivisors(const ChannelStatistics& statistics, const std::vector<double>& divisors) {
  if (absl::Status status = CheckFinite(statistics, "mean", statistics.mean); !status.ok()) return status;
  if (absl::Status status = CheckFinite(statistics, "variance", divisors); !status.ok()) return status;
  const auto zero = std::find(divisors.begin(), divisors.end(), 0.0);
  if (zero == divisors.end()) return absl::OkStatus();
  return Missing(absl::StrCat("channel ", statistics.NameOf(static_cast<size_t>(zero - divisors.begin())), " of ",
                              statistics.session, " has variance 0 and eps 0, and cannot be divided by"));
}

constexpr absl::string_view kCHeader = R"(/* $SESSION, version $VERSION
 * digest $DIGEST
 * Written by normctl stats export --format=c-header. y = (x - mean) / std, where std is sqrt(var + eps). */
#ifndef $GUARD
#define $GUARD

#include <stddef.h>

enum { $PREFIX_channels = $CHANNELS };
static const char $PREFIX_digest[] = "$DIGEST";
$NAMESstatic const double $PREFIX_mean[$PREFIX_channels] = $MEAN;
static const double $PREFIX_std[$PREFIX_channels] = $STD;

/* y[rows][channels] of x[rows][channels]; y may be x. */
static inline void $PREFIX_normalize(const double *x, double *y, size_t rows) {
  for (size_t i = 0; i < rows * $PREFIX_channels; ++i) {
    const size_t c = i % $PREFIX_channels;
    y[i] = (x[i] - $PREFIX_mean[c]) / $PREFIX_std[c];
  }
}

/* The same of floats, computed in double and rounded once. */
static inline void $PREFIX_normalize_f32(const float *x, float *y, size_t rows) {
  for (size_t i = 0; i < rows * $PREFIX_channels; ++i) {
    const size_t c = i % $PREFIX_channels;
    y[i] = (float)(((double)x[i] - $PREFIX_mean[c]) / $PREFIX_std[c]);
  }
}

#endif /* $GUARD */
)";

// A string of C: escapes in octal, because one in hexadecimal would take the digits that follow.
std::string CString(const std::string& text) { return absl::StrCat("\"", absl::CEscape(text), "\""); }

std::string NamesLine(const ChannelStatistics& statistics, absl::string_view prefix) {
  if (statistics.names.empty()) return "";
  return absl::StrCat(
      "static const char *const ", prefix, "_channel_names[", prefix, "_channels] = {",
      absl::StrJoin(statistics.names, ", ",
                    [](std::string* out, const std::string& name) { absl::StrAppend(out, CString(name)); }),
      "};\n");
}

}  // namespace

absl::StatusOr<std::string> LeRobotText(const ChannelStatistics& statistics, absl::string_view key) {
  const std::vector<double> deviations = statistics.StandardDeviations();
  const std::pair<absl::string_view, const std::vector<double>&> fields[] = {
      {"min", statistics.min}, {"max", statistics.max}, {"mean", statistics.mean}, {"std", deviations}};
  for (const auto& [field, values] : fields) {
    if (absl::Status status = CheckFinite(statistics, field, values); !status.ok()) return status;
  }
  const absl::StatusOr<std::vector<Feature>> features = FeaturesOf(statistics, key);
  if (!features.ok()) return features.status();
  OrderedJson out = OrderedJson::object();
  for (const Feature& feature : *features) {
    OrderedJson& json = out[feature.key];
    for (const auto& [field, values] : fields) json[std::string(field)] = ValuesAt(values, feature.channels);
    const double count = statistics.count[feature.channels[0]];
    for (const size_t channel : feature.channels) {
      if (statistics.count[channel] == count) continue;
      return Missing(absl::StrCat("channel ", statistics.NameOf(channel), " has ", statistics.count[channel],
                                  " samples and channel ", statistics.NameOf(feature.channels[0]), " has ", count,
                                  ", and a feature has one count"));
    }
    json["count"] = OrderedJson::array({CountJson(count)});
  }
  return out.dump(2) + "\n";
}

absl::StatusOr<std::string> OnnxScalerText(const ChannelStatistics& statistics) {
  const std::vector<double> divisors = Divisors(statistics);
  if (absl::Status status = CheckDivisors(statistics, divisors); !status.ok()) return status;
  OrderedJson offset = OrderedJson::array(), scale = OrderedJson::array();
  for (size_t c = 0; c < statistics.channels(); ++c) {
    offset.push_back(static_cast<float>(statistics.mean[c]));
    scale.push_back(static_cast<float>(1 / divisors[c]));
  }
  OrderedJson out = {{"domain", "ai.onnx.ml"},
                     {"op_type", "Scaler"},
                     {"attributes", {{"offset", std::move(offset)}, {"scale", std::move(scale)}}},
                     {"session", statistics.session},
                     {"version", statistics.version},
                     {"digest", statistics.digest}};
  if (!statistics.names.empty()) out["channel_names"] = statistics.names;
  return out.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

absl::StatusOr<std::string> CHeaderText(const ChannelStatistics& statistics, absl::string_view prefix) {
  const std::vector<double> divisors = Divisors(statistics);
  if (absl::Status status = CheckDivisors(statistics, divisors); !status.ok()) return status;
  return absl::StrReplaceAll(kCHeader, {{"$SESSION", statistics.session},
                                        {"$VERSION", absl::StrCat(statistics.version)},
                                        {"$DIGEST", statistics.digest},
                                        {"$GUARD", absl::StrCat(absl::AsciiStrToUpper(prefix), "_H")},
                                        {"$PREFIX", prefix},
                                        {"$CHANNELS", absl::StrCat(statistics.channels())},
                                        {"$NAMES", NamesLine(statistics, prefix)},
                                        {"$MEAN", Initializer(statistics.mean)},
                                        {"$STD", Initializer(divisors)}});
}

std::string CIdentifier(absl::string_view name) {
  std::string out(absl::StripPrefix(name, "sessions/"));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return !absl::ascii_isalnum(static_cast<unsigned char>(c)); }, '_');
  return IsCIdentifier(out) ? out : absl::StrCat("stats_", out);
}

bool IsCIdentifier(absl::string_view text) {
  const auto is_part = [](char c) { return c == '_' || absl::ascii_isalnum(static_cast<unsigned char>(c)); };
  return !text.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), is_part);
}

}  // namespace normd::client
