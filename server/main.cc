// The program normd: reads the options, sets up the process, and runs one Server until a signal ends it. Exit codes: 0
// after a drain, --help, --version, --check_config, --backup or --restore; 1 when normd cannot serve, the drain does
// not end in time, or the session store or the backup failed; 2 for a wrong option; 128 + signal when a second signal
// cuts the drain short.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/cpu/targets.h"
#include "server/base/clock.h"
#include "server/base/error_reasons.h"
#include "server/base/version.h"
#include "server/make_token.h"
#include "server/obs/log.h"
#include "server/options/config.h"
#include "server/options/config_reload.h"
#include "server/options/option_help.h"
#include "server/process_setup.h"
#include "server/rpc/grpc/grpc_log.h"
#include "server/server.h"
#include "server/service_manager.h"
#include "server/wiring/metrics.h"
#include "server/wiring/security_files.h"
#include "server/wiring/store_copies.h"

namespace normd {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
// Time beyond the drain's own limit for the store to write queued changes and for threads to end.
constexpr absl::Duration kTimeToEnd = absl::Seconds(15);

// What options are read from, at the start and at each SIGHUP.
struct Sources {
  std::vector<std::string> args;
  std::map<std::string, std::string> environment;

  absl::StatusOr<Config> Read() const { return ParseConfig(args, environment); }
};

// The server's log and that of gRPC and protobuf. The latter has a rate limit of its own, so that messages that peers
// provoke from gRPC do not use up the server's.
struct Logs {
  Log server;
  Log libraries;

  void SetStyle(const LogOptions& options) {
    for (Log* log : {&server, &libraries}) log->SetStyle(options.level, options.format);
  }
};

std::map<std::string, std::string> Environment() {
  std::map<std::string, std::string> result;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const char* equals = std::strchr(*variable, '=');
    if (equals != nullptr) result.emplace(std::string(*variable, equals - *variable), equals + 1);
  }
  return result;
}

LogOptions LogOptionsOf(const Config& config) {
  LogOptions options;
  options.format = config.log_format == "json" ? LogFormat::kJson : LogFormat::kText;
  if (config.log_level == "debug") options.level = LogLevel::kDebug;
  if (config.log_level == "warn") options.level = LogLevel::kWarn;
  if (config.log_level == "error") options.level = LogLevel::kError;
  return options;
}

// Prints what --help and --version ask for, and returns whether either was given.
bool PrintAndExit(const Config& config) {
  if (config.version) std::cout << "normd " << Version() << "\n";
  if (config.help == "text") std::cout << HelpText();
  if (config.help == "markdown") std::cout << HelpMarkdown();
  if (config.help == "toml") std::cout << HelpToml();
  if (config.help == "metrics") std::cout << MetricsMarkdown();
  if (config.help == "errors") std::cout << ErrorsMarkdown();
  return config.version || !config.help.empty();
}

// Estimates the memory that the server may need: the process itself, resident sessions, the admitted messages, and as
// much again in the transport, which the budget does not count.
int64_t MemoryNeededBytes(const Config& config) {
  constexpr int64_t kItselfBytes = 100 << 20;
  return kItselfBytes + config.max_resident_bytes + 2 * config.max_in_flight_bytes;
}

// Logs the environment of the process: unknown variables, memory and descriptor limits. Also raises the latter.
void LogSurroundings(Log& log, const Config& config, const std::map<std::string, std::string>& environment) {
  for (const UnknownVariable& variable : UnknownVariables(environment)) {
    LogFields fields = {{"name", variable.name}};
    if (!variable.nearest.empty()) fields.emplace_back("did_you_mean", variable.nearest);
    log.Warn("unknown environment variable", fields);
  }
  // The warning comes now because libraries abort the process without any hint once memory is refused.
  const int64_t needed = MemoryNeededBytes(config);
  if (const std::optional<int64_t> limit = MemoryLimitBytes(); limit.has_value() && *limit < needed) {
    log.Warn("the system allows less memory than the options may need",
             {{"limit_bytes", *limit}, {"needed_bytes", needed}});
  }
  const DescriptorLimits limits = RaiseDescriptorLimit();
  log.Info("descriptors",
           {{"limit", static_cast<int64_t>(limits.now)}, {"before", static_cast<int64_t>(limits.before)}});
}

// Tells the service manager what the process does, if there is one.
void Notify(const Sources& sources, std::string_view state, Log& log) {
  const auto socket = sources.environment.find("NOTIFY_SOCKET");
  if (socket == sources.environment.end()) return;
  const absl::Status status = NotifyServiceManager(socket->second, state);
  if (!status.ok()) log.Warn("cannot notify the service manager", {{"error", std::string(status.message())}});
}

// Reads the options again, which stay as they are if there is a mistake in them. Returns whether they were read; if
// not, because their file keeps changing, `again` says that this was reported already.
bool ReloadOptions(const Sources& sources, Server& server, Logs& logs, bool again) {
  const absl::StatusOr<Config> config = ReadConfigAgain(server.config().config, [&] { return sources.Read(); });
  const bool changing = absl::IsUnavailable(config.status());
  if (config.ok()) {
    const LogOptions before = LogOptionsOf(server.config());
    const LogOptions after = LogOptionsOf(*config);
    // The changes are logged where the old level or the new one lets them through.
    logs.SetStyle({.level = std::min(before.level, after.level), .format = before.format});
    server.Reload(*config);
    logs.SetStyle(after);
  } else if (!changing || !again) {
    server.RefuseReload(config.status());
  }
  return !changing;
}

// Reads the options and the files that they name. With `again`, reads the options alone, whose file kept changing: the
// other files are watched. Returns whether the options were read.
bool Reload(const Sources& sources, Server& server, Logs& logs, bool again) {
  if (again) return ReloadOptions(sources, server, logs, again);
  logs.server.Info("signal", {{"name", "SIGHUP"}});
  Notify(sources, ReloadingState(), logs.server);
  const bool read = ReloadOptions(sources, server, logs, again);
  server.ReloadFiles();
  Notify(sources, "READY=1", logs.server);
  return read;
}

// Ends the process after `limit`, whatever its threads are stuck in: an orchestrator would kill it then, and nothing
// would be logged.
void EndAfter(absl::Duration limit, Log& log) {
  std::thread([limit, &log] {
    absl::SleepFor(limit);
    log.Error("the drain did not end in time", {{"limit", absl::FormatDuration(limit)}});
    _exit(kExitFailure);
  }).detach();
}

int Serve(const Config& config, const Sources& sources, Logs& logs) {
  Log& log = logs.server;
  std::atomic<bool> store_failed{false};
  const auto stop = [&store_failed] {
    store_failed = true;
    RequestStop();  // has no further effect if the process is stopping already
  };
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(config, &log, stop);
  if (!server.ok()) {
    log.Error("cannot serve", {{"error", std::string(server.status().message())}});
    return kExitFailure;
  }
  Notify(sources, "READY=1", log);
  const int signal_number = WaitForStop([&](bool again) { return Reload(sources, **server, logs, again); });
  Notify(sources, "STOPPING=1", log);
  if (signal_number != 0) log.Info("signal", {{"name", signal_number == SIGTERM ? "SIGTERM" : "SIGINT"}});
  // A second signal means that the operator does not want to wait. _exit is used because nothing below main can be
  // unwound while calls run.
  std::thread([] { _exit(128 + WaitForStopSignal([](bool) { return true; })); }).detach();
  EndAfter((*server)->config().drain_settle + (*server)->config().drain_timeout + kTimeToEnd, log);
  (*server)->Drain();
  server->reset();  // writes the queued changes, which may fail
  log.Info("stopped");
  return store_failed ? kExitFailure : 0;
}

// Answers --check_config, for which every option was read and checked, but not the files that they name.
int CheckAndPrintValues(const Config& config, const std::map<std::string, std::string>& environment) {
  for (const UnknownVariable& variable : UnknownVariables(environment)) {
    std::cerr << "normd: warning: " << variable.name << " is no option's variable, and nothing reads it";
    if (!variable.nearest.empty()) std::cerr << "; did you mean " << variable.nearest << "?";
    std::cerr << "\n";
  }
  SystemClock clock;
  if (const absl::Status status = CheckSecurityFiles(config, &clock); !status.ok()) {
    std::cerr << "normd: " << status.message() << "\n";
    return kExitUsage;
  }
  std::cout << "ok\n" << ValuesText(config);
  return 0;
}

int Backup(const Config& config) {
  const absl::StatusOr<int64_t> records = BackupSessionStore(config);
  if (!records.ok()) {
    std::cerr << "normd: --backup: " << records.status().message() << "\n";
    return kExitFailure;
  }
  std::cout << "normd: " << *records << " sessions copied to " << config.backup << ", every record checked\n";
  return 0;
}

int Restore(const Config& config) {
  SystemClock clock;
  const absl::StatusOr<RestoredStore> restored = RestoreSessionStore(config, clock.Now());
  if (!restored.ok()) {
    std::cerr << "normd: --restore: " << restored.status().message() << "\n";
    return kExitFailure;
  }
  std::cout << "normd: " << restored->records << " sessions of " << config.restore << " are the store in "
            << config.data_dir << ", every record checked\n";
  if (!restored->before.empty()) std::cout << "normd: the store before is " << restored->before << "\n";
  return 0;
}

// Prints the token alone on stdout, so that it can be piped to where it is needed.
int PrintNewToken(const Config& config) {
  const absl::StatusOr<std::string> token = MakeToken(config.make_token, config.tokens_file);
  if (!token.ok()) {
    std::cerr << "normd: " << token.status().message() << "\n";
    return kExitFailure;
  }
  std::cerr << "normd: the token of token:" << config.make_token << " follows; " << config.tokens_file
            << " has its hash, and the token itself is stored nowhere\n";
  std::cout << *token << "\n";
  return 0;
}

int Main(int argc, char** argv) {
  const bool tuned = TuneAllocator();
  TuneTransport();
  SetUpSignalsAndFiles();
  const Sources sources = {.args = {argv + 1, argv + argc}, .environment = Environment()};
  const absl::StatusOr<Config> config = sources.Read();
  if (!config.ok()) {
    std::cerr << "normd: " << config.status().message() << "\n";
    return kExitUsage;
  }
  if (PrintAndExit(*config)) return 0;
  // The limit must be set before the first kernel runs.
  if (const absl::Status status = LimitCpuTargets(config->max_isa); !status.ok()) {
    std::cerr << "normd: --" << status.message() << "\n";
    return kExitUsage;
  }
  if (config->check_config) return CheckAndPrintValues(*config, sources.environment);
  if (!config->backup.empty()) return Backup(*config);
  if (!config->restore.empty()) return Restore(*config);
  if (!config->make_token.empty()) return PrintNewToken(*config);
  SystemClock clock;
  Logs logs = {.server = {LogOptionsOf(*config), &clock}, .libraries = {LogOptionsOf(*config), &clock}};
  Log& log = logs.server;
  const GrpcLog grpc_log(&logs.libraries);
  LogSurroundings(log, *config, sources.environment);
  if (!tuned) log.Warn("the allocator could not be tuned: large requests cost page faults");
  if (const absl::Status status = CheckFloatingPoint(); !status.ok()) {
    log.Error("cannot serve", {{"error", std::string(status.message())}});
    return kExitFailure;
  }
  return Serve(*config, sources, logs);
}

}  // namespace
}  // namespace normd

int main(int argc, char** argv) { return normd::Main(argc, argv); }
