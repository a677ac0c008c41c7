// normctl stats show, watch and diff: shared statistics for people, and as JSON.
#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/table.h"
#include "client/normctl/channel_statistics.h"
#include "client/normctl/commands.h"
#include "client/normctl/json_message.h"
#include "client/normctl/session_message.h"

namespace normd::client {
namespace {

using Json = nlohmann::json;

constexpr size_t kShownChannels = 40;

std::string SixDigits(double value) { return absl::StrFormat("%.6g", value); }

// "sessions/a  version 7, frozen, 3 channels\ndigest ...\n"
std::string HeadingText(const ChannelStatistics& statistics) {
  return absl::StrCat(statistics.session, "  version ", statistics.version, statistics.frozen ? ", frozen" : "", ", ",
                      statistics.channels(), statistics.channels() == 1 ? " channel" : " channels", "\ndigest ",
                      statistics.digest, "\n");
}

// "... and 12 channels more", if a table does not have them all.
std::string RestText(size_t channels) {
  return channels > kShownChannels ? absl::StrCat("... and ", channels - kShownChannels, " channels more: --json\n")
                                   : "";
}

absl::Status RunShow(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  const absl::StatusOr<ChannelStatistics> statistics = ReadStatistics(**client, args.operands()[0]);
  if (!statistics.ok()) return statistics.status();
  if (args.Has("json")) {
    terminal.out << JsonText(StatisticsJson(*statistics));
    return absl::OkStatus();
  }
  Table table({{"channel"},
               {"count", Align::kRight},
               {"mean", Align::kRight},
               {"std", Align::kRight},
               {"min", Align::kRight},
               {"max", Align::kRight}});
  const std::vector<double> deviations = statistics->StandardDeviations();
  for (size_t c = 0; c < std::min(statistics->channels(), kShownChannels); ++c) {
    table.AddRow({statistics->NameOf(c), SixDigits(statistics->count[c]), SixDigits(statistics->mean[c]),
                  SixDigits(deviations[c]), SixDigits(statistics->min[c]), SixDigits(statistics->max[c])});
  }
  terminal.out << HeadingText(*statistics) << table.Render(terminal.width) << RestText(statistics->channels());
  return absl::OkStatus();
}

// ---- watch

double MeanOf(const std::vector<double>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return sum / static_cast<double>(std::max<size_t>(values.size(), 1));
}

std::string VersionLine(absl::string_view time, absl::string_view version, absl::string_view samples,
                        absl::string_view mean, absl::string_view deviation) {
  return absl::StrFormat("%-30s  %8s  %13s  %13s  %13s\n", time, version, samples, mean, deviation);
}

void PrintVersion(const v1::Session& session, const ChannelStatistics& now, bool is_first, const ParsedArgs& args,
                  const Terminal& terminal) {
  const std::string time = google::protobuf::util::TimeUtil::ToString(session.update_time());
  if (args.Has("json")) {
    Json json = StatisticsJson(now);
    json["time"] = time;
    terminal.out << json.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
  } else {
    if (is_first) terminal.out << VersionLine("time", "version", "samples", "mean", "std");
    const double most = now.count.empty() ? 0 : *std::max_element(now.count.begin(), now.count.end());
    terminal.out << VersionLine(time, absl::StrCat(now.version), SixDigits(most), SixDigits(MeanOf(now.mean)),
                                SixDigits(MeanOf(now.StandardDeviations())));
  }
  terminal.out.flush();
}

absl::Status RunWatchStatistics(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  const absl::StatusOr<std::optional<int64_t>> count = args.Int("count");
  if (!count.ok()) return count.status();
  if (count->has_value() && **count < 1) return BadValueError("count", *args.Get("count"), "at least 1");
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  const std::unique_ptr<SessionWatch> watch = (*client)->WatchSession(SessionName(args.operands()[0]));
  for (int64_t lines = 0; lines < count->value_or(std::numeric_limits<int64_t>::max()); ++lines) {
    const absl::StatusOr<v1::Session> session = watch->Next();
    if (!session.ok()) return session.status();
    const absl::StatusOr<ChannelStatistics> now = StatisticsOf(*session);
    if (!now.ok()) return now.status();
    PrintVersion(*session, *now, lines == 0, args, terminal);
    if (!terminal.out.good()) break;  // Finish reports that the output is closed
  }
  return absl::OkStatus();
}

// ---- diff

// One channel of two sessions.
struct ChannelDifference {
  std::string name;
  double shift = 0;  // |mean - other mean| in standard deviations of the first
  double ratio = 1;  // of the second standard deviation to the first
};

double RatioOf(double a, double b) { return a == b ? 1 : b / a; }

// The channels of `b` in the order of those of `a`. Channels without a counterpart are an error.
absl::StatusOr<ChannelStatistics> InOrderOf(const ChannelStatistics& a, const ChannelStatistics& b) {
  if (a.names.empty() != b.names.empty()) {
    const ChannelStatistics& unnamed = a.names.empty() ? a : b;
    return absl::FailedPreconditionError(
        absl::StrCat("the channels of ", unnamed.session, " have no names, and those of the other session do"));
  }
  if (a.channels() != b.channels()) {
    return absl::FailedPreconditionError(
        absl::StrCat(a.session, " has ", a.channels(), " channels, and ", b.session, " has ", b.channels()));
  }
  return a.names.empty() ? absl::StatusOr<ChannelStatistics>(b) : ChooseChannels(b, a.names);
}

std::vector<ChannelDifference> DifferencesOf(const ChannelStatistics& a, const ChannelStatistics& b) {
  const std::vector<double> first = a.StandardDeviations(), second = b.StandardDeviations();
  std::vector<ChannelDifference> out;
  for (size_t c = 0; c < a.channels(); ++c) {
    const double distance = std::fabs(a.mean[c] - b.mean[c]);
    out.push_back({a.NameOf(c), distance == 0 ? 0 : distance / first[c], RatioOf(first[c], second[c])});
  }
  return out;
}

// Whether a channel is further away than `tolerance`. NaN is far from everything.
bool Differs(const ChannelDifference& one, double tolerance) {
  return !(one.shift <= tolerance && std::fabs(one.ratio - 1) <= tolerance);
}

void PrintDifferences(const ChannelStatistics& a, const ChannelStatistics& b,
                      const std::vector<ChannelDifference>& differences, double tolerance, const Terminal& terminal) {
  Table table({{"channel"},
               {"count", Align::kRight},
               {"other", Align::kRight},
               {"mean", Align::kRight},
               {"other", Align::kRight},
               {"shift / std", Align::kRight},
               {"std ratio", Align::kRight},
               {""}});
  for (size_t c = 0; c < std::min(differences.size(), kShownChannels); ++c) {
    table.AddRow({differences[c].name, SixDigits(a.count[c]), SixDigits(b.count[c]), SixDigits(a.mean[c]),
                  SixDigits(b.mean[c]), SixDigits(differences[c].shift), SixDigits(differences[c].ratio),
                  Differs(differences[c], tolerance) ? "differs" : ""});
  }
  terminal.out << a.session << " version " << a.version << "  and  " << b.session << " version " << b.version << "\n"
               << table.Render(terminal.width) << RestText(differences.size());
}

Json DifferencesJson(const ChannelStatistics& a, const ChannelStatistics& b,
                     const std::vector<ChannelDifference>& differences, double tolerance) {
  Json channels = Json::array();
  for (const ChannelDifference& one : differences) {
    channels.push_back({{"channel", one.name},
                        {"shift", NumberJson(one.shift)},
                        {"std_ratio", NumberJson(one.ratio)},
                        {"differs", Differs(one, tolerance)}});
  }
  return {{"sessions", {a.session, b.session}}, {"same_digest", a.digest == b.digest}, {"channels", channels}};
}

absl::Status RunDiff(const CommandSpec&, const ParsedArgs& args, const Terminal& terminal) {
  const absl::StatusOr<std::optional<double>> given = args.Double("tolerance");
  if (!given.ok()) return given.status();
  const double tolerance = given->value_or(0);
  if (!(tolerance >= 0)) return BadValueError("tolerance", *args.Get("tolerance"), "at least 0");
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  const absl::StatusOr<ChannelStatistics> a = ReadStatistics(**client, args.operands()[0]);
  if (!a.ok()) return a.status();
  absl::StatusOr<ChannelStatistics> b = ReadStatistics(**client, args.operands()[1]);
  if (!b.ok()) return b.status();
  b = InOrderOf(*a, *b);
  if (!b.ok()) return b.status();
  const std::vector<ChannelDifference> differences = DifferencesOf(*a, *b);
  if (args.Has("json")) {
    terminal.out << JsonText(DifferencesJson(*a, *b, differences, tolerance));
  } else {
    PrintDifferences(*a, *b, differences, tolerance, terminal);
  }
  const auto differing = std::count_if(differences.begin(), differences.end(),
                                       [tolerance](const ChannelDifference& one) { return Differs(one, tolerance); });
  if (differing == 0) return absl::OkStatus();
  return ReportedError(absl::StrCat(differing, " of ", differences.size(), " channels differ"));
}

}  // namespace

std::vector<Command> StatsCommands() {
  Command show, watch, diff;
  show.spec = {"stats show", "NAME", 1, 1, "show shared statistics, a line for each channel"};
  show.run = &RunShow;
  watch.spec = {"stats watch",
                "NAME",
                1,
                1,
                "show shared statistics moving: a line for each version that is seen",
                "The server sends the versions as they come. A line has the time of the change, the version, the\n"
                "most samples of a channel, and the means over the channels of mean and standard deviation. Goes on\n"
                "when the server was away; ends with Ctrl-C, after --count lines, or with exit code 1 when the\n"
                "session is deleted. --json prints one object a line.",
                {{"count", 'n', "N", "end after so many lines"}}};
  watch.run = &RunWatchStatistics;
  diff.spec = {"stats diff",
               "NAME OTHER",
               2,
               2,
               "compare shared statistics channel by channel",
               "Channels with names are compared by name; a channel that only one of the two has is an error.\n"
               "Exit code 1 if a channel differs: if the means are further apart than --tolerance standard\n"
               "deviations of NAME, or the ratio of the standard deviations is further from 1.",
               {{"tolerance", 't', "T", "how far two channels may be apart (default 0)"}}};
  diff.run = &RunDiff;
  return {show, watch, diff};
}

}  // namespace normd::client
