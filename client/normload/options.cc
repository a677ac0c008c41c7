#include "client/normload/options.h"

#include <algorithm>
#include <fstream>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/program.h"
#include "client/cli/security_flags.h"
#include "client/cpp/local_server.h"

namespace normd::client {
namespace {

constexpr absl::string_view kDefaultLoads = "10,20,30,40,50,60,70,80,90,100,110,120,130,140,150";
constexpr double kMinRate = 0.01, kMaxRate = 1e6;
// Due times of one measurement. Drawing the ones left over at its end takes a second or two.
constexpr double kMaxCalls = 1e8;
constexpr size_t kMaxLoads = 100;
constexpr int kMaxConnections = 256;
constexpr double kMaxLoad = 1000;

absl::StatusOr<int64_t> Whole(const ParsedArgs& args, absl::string_view flag, int64_t fallback, int64_t low,
                              int64_t high) {
  const absl::StatusOr<std::optional<int64_t>> value = args.Int(flag);
  if (!value.ok()) return value.status();
  const int64_t count = value->value_or(fallback);
  if (count < low || count > high) {
    return BadValueError(flag, absl::StrCat(count), absl::StrCat(low, " to ", high));
  }
  return count;
}

absl::Status ReadTime(const ParsedArgs& args, absl::string_view flag, absl::Duration low, absl::Duration high,
                      absl::Duration& to) {
  const absl::StatusOr<std::optional<absl::Duration>> value = args.Duration(flag);
  if (!value.ok()) return value.status();
  to = value->value_or(to);
  if (to >= low && to <= high) return absl::OkStatus();
  return BadValueError(flag, absl::FormatDuration(to),
                       absl::StrCat(absl::FormatDuration(low), " to ", absl::FormatDuration(high)));
}

absl::Status AddCounts(const ParsedArgs& args, NormloadOptions& options) {
  // A late call must not hold up the calls after it.
  const bool many = options.sweep || args.Has("rate");
  const absl::StatusOr<int64_t> concurrency = Whole(args, "concurrency", many ? 64 : 1, 1, 4096);
  const absl::StatusOr<int64_t> connections = Whole(args, "connections", 1, 1, kMaxConnections);
  const absl::StatusOr<int64_t> requests = Whole(args, "requests", 0, 0, std::numeric_limits<int>::max());
  const absl::StatusOr<int64_t> repeats = Whole(args, "repeats", options.sweep ? 3 : 1, 1, 100);
  const absl::StatusOr<int64_t> seed =
      Whole(args, "seed", static_cast<int64_t>(options.load.seed), 0, std::numeric_limits<int64_t>::max());
  const absl::StatusOr<int64_t> pid = Whole(args, "server-pid", 1, 1, std::numeric_limits<int>::max());
  for (const auto* value : {&concurrency, &connections, &requests, &repeats, &seed, &pid}) {
    if (!value->ok()) return value->status();
  }
  options.load.concurrency = static_cast<int>(*concurrency);
  options.load.connections = args.Has("connections") ? static_cast<int>(*connections) : 0;
  options.load.requests = *requests;
  options.load.seed = static_cast<uint64_t>(*seed);
  options.repeats = static_cast<int>(*repeats);
  if (args.Has("server-pid")) options.server_pid = static_cast<int>(*pid);
  return absl::OkStatus();
}

absl::Status AddTimes(const ParsedArgs& args, NormloadOptions& options) {
  constexpr absl::Duration kTick = absl::Milliseconds(1), kHour = absl::Hours(1);
  if (options.sweep) {
    options.load.duration = absl::Seconds(3);
    options.load.warmup = absl::Milliseconds(500);
  }
  options.max_time = absl::Minutes(30);
  LoadOptions& load = options.load;
  for (const absl::Status& status : {ReadTime(args, "duration", kTick, 24 * kHour, load.duration),
                                     ReadTime(args, "warmup", absl::ZeroDuration(), kHour, load.warmup),
                                     ReadTime(args, "deadline", kTick, kHour, load.deadline),
                                     ReadTime(args, "slo", absl::Microseconds(1), absl::Minutes(10), load.slo),
                                     ReadTime(args, "max-time", absl::Seconds(1), 24 * kHour, options.max_time)}) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status AddRate(const ParsedArgs& args, NormloadOptions& options) {
  if (args.Has("arrivals") && !options.sweep && !args.Has("rate")) {
    return UsageError("--arrivals needs an open loop; give --rate or --sweep, too");
  }
  const absl::StatusOr<ArrivalKind> arrivals = ParseArrivalKind(args.GetOr("arrivals", "poisson"));
  if (!arrivals.ok()) return arrivals.status();
  options.load.arrivals = *arrivals;
  const absl::StatusOr<std::optional<double>> rate = args.Double("rate");
  if (!rate.ok()) return rate.status();
  if (!rate->has_value()) return absl::OkStatus();
  if (options.sweep)
    return UsageError("--rate does not go with --sweep, which chooses its rates; leave one of them out");
  const std::string text = args.GetOr("rate", "");
  if (!(**rate >= kMinRate && **rate <= kMaxRate)) {
    return BadValueError("rate", text, absl::StrCat(kMinRate, " to ", kMaxRate, " calls a second"));
  }
  const absl::Duration time = options.load.warmup + options.load.duration;
  if (**rate * absl::ToDoubleSeconds(time) > kMaxCalls) {
    return UsageError(absl::StrCat("--rate ", text, " for ", absl::FormatDuration(time), " makes more than ", kMaxCalls,
                                   " calls; choose a lower rate or a shorter --duration"));
  }
  options.load.rate = **rate;
  return absl::OkStatus();
}

absl::Status AddLoads(const ParsedArgs& args, NormloadOptions& options) {
  if (!options.sweep) {
    for (absl::string_view flag : {"loads", "max-time"}) {
      if (args.Has(flag)) return UsageError(absl::StrCat("--", flag, " needs --sweep"));
    }
    return absl::OkStatus();
  }
  if (args.Has("requests"))
    return UsageError("--requests does not go with --sweep, whose steps are timed; leave one of them out");
  const std::string text = args.GetOr("loads", kDefaultLoads);
  for (absl::string_view piece : absl::StrSplit(text, ',')) {
    double percent;
    if (!absl::SimpleAtod(piece, &percent) || !(percent > 0 && percent <= kMaxLoad) ||
        options.loads.size() == kMaxLoads) {
      return BadValueError("loads", text,
                           absl::StrCat("at most ", kMaxLoads, " percentages, above 0 and at most ", kMaxLoad));
    }
    options.loads.push_back(percent);
  }
  std::sort(options.loads.begin(), options.loads.end());
  options.loads.erase(std::unique(options.loads.begin(), options.loads.end()), options.loads.end());
  if (options.expected_time() > options.max_time) {
    return UsageError(absl::StrCat("--sweep makes ", options.loads.size() + 1, " measurements of ",
                                   absl::FormatDuration(options.load.warmup + options.load.duration), ", ",
                                   options.repeats, " times each, which take ",
                                   absl::FormatDuration(options.expected_time()), "; --max-time allows ",
                                   absl::FormatDuration(options.max_time)));
  }
  return absl::OkStatus();
}

absl::Status AddEntries(const ParsedArgs& args, NormloadOptions& options) {
  if (!args.Has("mix")) {
    absl::StatusOr<MixEntry> entry = MakeEntry(args);
    if (!entry.ok()) return entry.status();
    options.load.entries.push_back(*std::move(entry));
  } else {
    for (const FlagSpec& flag : CallFlags()) {
      if (args.Has(flag.name)) {
        return UsageError(
            absl::StrCat("--", flag.name, " does not go with --mix, whose entries say it; leave one of them out"));
      }
    }
    absl::StatusOr<std::vector<MixEntry>> entries = ParseMix(args.GetAll("mix"));
    if (!entries.ok()) return entries.status();
    options.load.entries = *std::move(entries);
  }
  if (absl::Status status = CheckShared(options.load.entries, options.load.server); !status.ok()) return status;
  return CheckMemory(options.load.entries, options.load.concurrency);
}

// Checks that the file can be written, before an hour of measuring and not after.
absl::Status AddHtml(const ParsedArgs& args, NormloadOptions& options) {
  if (!args.Has("html")) return absl::OkStatus();
  options.html = args.GetOr("html", "");
  if (std::ofstream(options.html, std::ios::app).is_open()) return absl::OkStatus();
  return UsageError(absl::StrCat("--html is ", options.html, ", which cannot be written"));
}

}  // namespace

void SetConnections(int max_streams, LoadOptions& load) {
  load.max_streams = std::max(max_streams, 1);
  if (load.connections > 0) return;
  const int needed = (load.concurrency + load.max_streams - 1) / load.max_streams;
  load.connections = std::min(needed, kMaxConnections);
}

int64_t NormloadOptions::measurements() const { return (sweep ? static_cast<int64_t>(loads.size()) + 1 : 1) * repeats; }

absl::Duration NormloadOptions::expected_time() const { return measurements() * (load.warmup + load.duration); }

CommandSpec NormloadSpec() {
  CommandSpec spec;
  spec.summary = "Loads a normd server and prints throughput and latency.";
  spec.details =
      "Closed loop: each of --concurrency workers sends its next call when the last one is answered. With --rate an\n"
      "open loop: calls are due whatever the server does, and latency counts from when a call was due. --sweep "
      "measures\n"
      "the capacity, then open loops around it, and names the knee. MB/s are tensor bytes of calls that succeeded,\n"
      "1 MB = 10^6 bytes. batch-norm and power-norm without a session run in training mode, which needs no state.\n"
      "\n"
      "normload completion SHELL and normload man print what their names say.";
  spec.flags =
      Join(Join({{"rate", 'r', "R", "open loop: calls due in a second"},
                 {"arrivals", '\0', "KIND", "of an open loop: poisson (default) or constant", "", "poisson|constant"},
                 {"seed", '\0', "N", "of arrivals and of the mix (default 20240607)"},
                 {"mix", '\0', "ENTRY",
                  "weight=3,method=rms-norm,shape=16x1024,...: one of several kinds of calls, "
                  "keys as the flags of one call; or a .json file of entries; repeatable"},
                 {"sweep", '\0', "", "capacity, then latency over load"},
                 {"loads", '\0', "P,P", "of a sweep, percent of capacity (default 10 to 150 in tens)"},
                 {"slo", '\0', "TIME", "the limit of p99 latency, and of a good answer (default 10ms)"},
                 {"repeats", '\0', "N", "measure so many times, report the medians (default 1; sweep 3)"},
                 {"max-time", '\0', "TIME", "of a sweep (default 30m)"},
                 {"concurrency", 'c', "N", "most calls in flight (default 1; open loop and sweep 64)"},
                 {"connections", '\0', "N",
                  "clients that the workers are spread over (default: so many that the server takes all calls)"},
                 {"duration", 'd', "TIME", "how long to measure (default 10s; each step of a sweep 3s)"},
                 {"warmup", '\0', "TIME", "before measuring (default 1s; sweep 500ms)"},
                 {"requests", 'n', "N", "stop after so many calls, too"},
                 {"html", '\0', "FILE", "write the report with its figures as one page, too"},
                 {"server-pid", '\0', "PID", "of the server, whose CPU is not background; default: who listens there"},
                 {"allow-remote", '\0', "", "load a server on another machine"},
                 {"balance", '\0', "", "spread calls over those of the target's addresses that are healthy"},
                 {"retry", '\0', "", "send failed calls again as the library does, instead of counting them"},
                 kVersionFlag},
                CallFlags()),
           ServerFlags());
  return spec;
}

absl::StatusOr<NormloadOptions> MakeOptions(const ParsedArgs& args) {
  NormloadOptions options;
  const absl::StatusOr<std::string> server = ServerTarget(args);
  if (!server.ok()) return server.status();
  options.load.server = *server;
  if (!IsLocal(options.load.server) && !args.Has("allow-remote")) {
    return UsageError(
        absl::StrCat(options.load.server, " is not on this machine; --allow-remote loads it all the same"));
  }
  absl::StatusOr<SecurityOptions> security = ReadSecurity(args, options.load.server);
  if (!security.ok()) return security.status();
  options.load.security = *std::move(security);
  options.load.balance = args.Has("balance");
  options.load.retry = args.Has("retry");
  options.sweep = args.Has("sweep");
  using Step = absl::Status (*)(const ParsedArgs&, NormloadOptions&);
  for (Step step : {&AddCounts, &AddTimes, &AddRate, &AddLoads, &AddEntries, &AddHtml}) {
    if (absl::Status status = step(args, options); !status.ok()) return status;
  }
  return options;
}

}  // namespace normd::client
