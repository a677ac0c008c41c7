#include "client/normctl/session_watch.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "client/cli/error_text.h"
#include "client/cli/spec_flags.h"
#include "client/cli/table.h"
#include "client/cpp/tensor.h"
#include "client/normctl/commands.h"
#include "client/normctl/json_message.h"
#include "client/normctl/session_message.h"

namespace normd::client {
namespace {

using Json = nlohmann::json;

// The width of a line up to its last number. The rest of the terminal's width goes to the channels.
constexpr int kNumbersWidth = 90;
constexpr int kLeastChannelsWidth = 20;

absl::StatusOr<std::optional<WatchedStatistic>> Read(bool has, const v1::Tensor& tensor) {
  if (!has) return std::optional<WatchedStatistic>();
  const absl::StatusOr<Tensor> parsed = Tensor::FromProto(tensor);
  if (!parsed.ok()) return parsed.status();
  WatchedStatistic out;
  out.values = parsed->ToDoubles();
  const double sum = std::accumulate(out.values.begin(), out.values.end(), 0.0);
  out.mean = sum / static_cast<double>(std::max<size_t>(out.values.size(), 1));
  return std::optional<WatchedStatistic>(std::move(out));
}

// The content of one line: one version of the session. `var` is phi for PowerNorm.
struct Snapshot {
  v1::Session session;
  std::optional<WatchedStatistic> mean, var;
  bool compared = false;
};

void Compare(const std::optional<WatchedStatistic>& before, bool relative, std::optional<WatchedStatistic>& now) {
  if (!before.has_value() || !now.has_value() || before->values.size() != now->values.size()) return;
  now->largest_change = LargestChange(before->values, now->values, relative);
}

absl::StatusOr<Snapshot> MakeSnapshot(v1::Session session, const std::optional<Snapshot>& before) {
  const v1::RunningState& state = session.state();
  absl::StatusOr<std::optional<WatchedStatistic>> mean = Read(state.has_mean(), state.mean());
  absl::StatusOr<std::optional<WatchedStatistic>> var =
      state.has_phi() ? Read(true, state.phi()) : Read(state.has_var(), state.var());
  if (!mean.ok()) return mean.status();
  if (!var.ok()) return var.status();
  Snapshot out = {std::move(session), *std::move(mean), *std::move(var), false};
  // A different uid is a different session, so there is no movement to show.
  out.compared = before.has_value() && before->session.uid() == out.session.uid();
  if (!out.compared) return out;
  Compare(before->mean, false, out.mean);
  Compare(before->var, true, out.var);
  return out;
}

absl::Time UpdateTime(const v1::Session& session) {
  return absl::FromUnixSeconds(session.update_time().seconds()) + absl::Nanoseconds(session.update_time().nanos());
}

std::string HeaderText(const Snapshot& now, int width) {
  const absl::string_view var = now.session.state().has_phi() ? "phi" : "var";
  return absl::StrFormat("%-12s  %7s  %7s  %13s  %13s  %13s  %13s%s\n", "time (UTC)", "version", "batches", "mean", var,
                         "max |d mean|", absl::StrCat("max d ", var, "/", var),
                         width >= kNumbersWidth + kLeastChannelsWidth ? "  channels" : "");
}

// The channels of the mean (phi for PowerNorm): their range, and their shape if it fits.
std::string ChannelsText(const Snapshot& now, int width) {
  const std::optional<WatchedStatistic>& shown = now.mean.has_value() ? now.mean : now.var;
  if (width < kNumbersWidth + kLeastChannelsWidth || !shown.has_value() || shown->values.empty()) return "";
  const auto [least, most] = std::minmax_element(shown->values.begin(), shown->values.end());
  std::string out = absl::StrFormat("  %.4g..%.4g", *least, *most);
  const int room = width - kNumbersWidth - static_cast<int>(out.size()) - 1;
  if (static_cast<int>(shown->values.size()) <= room) absl::StrAppend(&out, " ", Sparkline(shown->values));
  return out;
}

std::string LineText(const Snapshot& now, int width) {
  const auto number = [](bool shown, double value) { return shown ? absl::StrFormat("%.5g", value) : "-"; };
  const auto mean = [&](const std::optional<WatchedStatistic>& s) { return number(s.has_value(), s ? s->mean : 0); };
  const auto change = [&](const std::optional<WatchedStatistic>& s) {
    return number(now.compared && s.has_value(), s ? s->largest_change : 0);
  };
  const bool has_state = now.mean.has_value() || now.var.has_value();
  return absl::StrFormat("%-12s  %7d  %7s  %13s  %13s  %13s  %13s%s\n",
                         absl::FormatTime("%H:%M:%E3S", UpdateTime(now.session), absl::UTCTimeZone()),
                         now.session.version(), has_state ? absl::StrCat(now.session.state().num_batches()) : "-",
                         mean(now.mean), mean(now.var), change(now.mean), change(now.var), ChannelsText(now, width));
}

Json StatisticJson(const std::optional<WatchedStatistic>& statistic, bool compared) {
  if (!statistic.has_value()) return Json();
  Json values = Json::array();
  for (const double value : statistic->values) values.push_back(NumberJson(value));
  return {{"mean", NumberJson(statistic->mean)},
          {"largest_change", compared ? NumberJson(statistic->largest_change) : Json()},
          {"values", std::move(values)}};
}

std::string LineJson(const Snapshot& now, bool recreated) {
  const bool has_phi = now.session.state().has_phi();
  Json out = {{"session", now.session.name()},
              {"uid", now.session.uid()},
              {"recreated", recreated},
              {"time", google::protobuf::util::TimeUtil::ToString(now.session.update_time())},
              {"version", now.session.version()},
              {"num_batches", now.session.state().num_batches()}};
  if (now.mean.has_value()) out["running_mean"] = StatisticJson(now.mean, now.compared);
  if (now.var.has_value()) out[has_phi ? "running_phi" : "running_var"] = StatisticJson(now.var, now.compared);
  return absl::StrCat(out.dump(-1, ' ', false, Json::error_handler_t::replace), "\n");
}

// Returns the error that ends the watching, after the lines that were printed.
absl::Status End(const WatchOptions& options, const std::optional<Snapshot>& last, absl::Status status,
                 const Terminal& terminal) {
  if (absl::IsNotFound(status) && last.has_value()) {
    status = absl::NotFoundError(absl::StrCat(options.name, " is gone: deleted or expired after version ",
                                              last->session.version(), " (uid ", last->session.uid(), ")"));
  }
  if (!options.json) return status;
  terminal.out
      << ErrorJson(status, ErrorText(status, options.errors)).dump(-1, ' ', false, Json::error_handler_t::replace)
      << "\n";
  return Reported(std::move(status));
}

void Print(const WatchOptions& options, const std::optional<Snapshot>& before, const Snapshot& now,
           const Terminal& terminal) {
  const bool recreated = before.has_value() && !now.compared;
  if (options.json) {
    terminal.out << LineJson(now, recreated);
  } else {
    if (!before.has_value()) terminal.out << HeaderText(now, terminal.width);
    if (recreated) {
      terminal.out << options.name << " was deleted and created again: uid " << before->session.uid() << " -> "
                   << now.session.uid() << "\n";
    }
    terminal.out << LineText(now, terminal.width);
  }
  terminal.out.flush();
}

absl::StatusOr<WatchOptions> ReadOptions(const CommandSpec& spec, const ParsedArgs& args) {
  constexpr absl::Duration kLeastInterval = absl::Milliseconds(10);  // protects the server from a busy loop
  WatchOptions options;
  options.name = SessionName(args.operands()[0]);
  options.json = args.Has("json");
  options.errors = ContextOf(spec, args);
  const absl::StatusOr<std::optional<absl::Duration>> interval = args.Duration("interval");
  if (!interval.ok()) return interval.status();
  options.interval = interval->value_or(absl::Seconds(1));
  if (options.interval < kLeastInterval) return BadValueError("interval", *args.Get("interval"), "at least 10ms");
  const absl::StatusOr<std::optional<int64_t>> count = args.Int("count");
  if (!count.ok()) return count.status();
  options.count = count->value_or(0);
  if (count->has_value() && options.count < 1) return BadValueError("count", *args.Get("count"), "at least 1");
  return options;
}

absl::Status RunWatch(const CommandSpec& spec, const ParsedArgs& args, const Terminal& terminal) {
  const absl::StatusOr<WatchOptions> options = ReadOptions(spec, args);
  if (!options.ok()) return options.status();
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectTo(args);
  if (!client.ok()) return client.status();
  return WatchSession(
      *options, [&] { return (*client)->GetSession(options->name, v1::SESSION_VIEW_FULL); },
      [](absl::Duration interval) { absl::SleepFor(interval); }, terminal);
}

}  // namespace

double LargestChange(const std::vector<double>& before, const std::vector<double>& now, bool relative) {
  double largest = 0;
  for (size_t i = 0; i < now.size(); ++i) {
    double change = now[i] == before[i] ? 0 : std::fabs(now[i] - before[i]);
    if (relative && change != 0) change /= std::fabs(before[i]);
    if (std::isnan(change)) return std::numeric_limits<double>::quiet_NaN();
    largest = std::max(largest, change);
  }
  return largest;
}

std::string Sparkline(const std::vector<double>& values) {
  constexpr absl::string_view kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  std::string out;
  for (const double value : values) {
    // Divides before it subtracts, so that the range of huge values does not overflow.
    const double share = most > least ? (value / 2 - least / 2) / (most / 2 - least / 2) : 0;
    absl::StrAppend(&out, std::isfinite(value) ? kBars[static_cast<size_t>(std::lround(share * 7))] : " ");
  }
  return out;
}

absl::Status WatchSession(const WatchOptions& options, absl::FunctionRef<absl::StatusOr<v1::Session>()> get,
                          absl::FunctionRef<void(absl::Duration)> sleep, const Terminal& terminal) {
  std::optional<Snapshot> last;
  for (int64_t lines = 0; options.count == 0 || lines < options.count;) {
    absl::StatusOr<v1::Session> session = get();
    if (!session.ok()) return End(options, last, session.status(), terminal);
    const bool is_new =
        !last.has_value() || session->uid() != last->session.uid() || session->version() != last->session.version();
    if (is_new) {
      absl::StatusOr<Snapshot> now = MakeSnapshot(*std::move(session), last);
      if (!now.ok()) return End(options, last, now.status(), terminal);
      Print(options, last, *now, terminal);
      if (!terminal.out.good()) return absl::OkStatus();  // Finish reports that the output is closed
      last = *std::move(now);
      ++lines;
    }
    if (options.count == 0 || lines < options.count) sleep(options.interval);
  }
  return absl::OkStatus();
}

std::vector<Command> SessionWatchCommands() {
  Command command;
  command.spec = {
      "session watch",
      "NAME",
      1,
      1,
      "show a session's running statistics moving: a line for each new version",
      "A line has the time of the update, version, batches, the means over the channels of the running\n"
      "mean and variance (PowerNorm: phi), and how far they moved since the line before: the largest\n"
      "absolute change of a channel's mean, the largest relative change of a channel's variance. Wide\n"
      "terminals also show the channels of the running mean. Versions that come and go between two\n"
      "looks are one line. Ends with Ctrl-C, after --count lines, or with exit code 1 when the session\n"
      "is deleted. --json prints one object a line.",
      {{"interval", 'i', "TIME", "how often to look (default 1s)"}, {"count", 'n', "N", "end after so many lines"}}};
  command.run = &RunWatch;
  return {command};
}

}  // namespace normd::client
