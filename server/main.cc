// normd: options, process set-up, one Server, and the signals that end it. Exit codes: 0 after a drain or --help, 1
// when it cannot serve or its session store failed, 2 for a wrong option, 128 + signal when a second signal cuts the
// drain short.
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "server/base/clock.h"
#include "server/base/version.h"
#include "server/config.h"
#include "server/obs/log.h"
#include "server/obs/metrics.h"
#include "server/open_store.h"
#include "server/process_setup.h"
#include "server/server.h"

namespace normd {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

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

// Prints what --help and --version ask for; false: neither was given.
bool PrintAndExit(const Config& config) {
  if (config.version) std::cout << "normd " << Version() << "\n";
  if (config.help == "text") std::cout << HelpText();
  if (config.help == "markdown") std::cout << HelpMarkdown();
  if (config.help == "metrics") std::cout << MetricsMarkdown();
  return config.version || !config.help.empty();
}

int Serve(const Config& config, Log& log) {
  std::atomic<bool> stopping{false};
  std::atomic<bool> store_failed{false};
  const auto stop = [&stopping, &store_failed] {
    store_failed = true;
    // As if it had been asked to: the one way down. On the way already, a second signal would cut it short.
    if (!stopping.exchange(true)) kill(getpid(), SIGTERM);
  };
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(config, &log, stop);
  if (!server.ok()) {
    log.Error("cannot serve", {{"error", std::string(server.status().message())}});
    return kExitFailure;
  }
  const int signal_number = WaitForStopSignal();
  stopping = true;
  log.Info("signal", {{"name", signal_number == SIGTERM ? "SIGTERM" : "SIGINT"}});
  // Whoever asks twice does not want to wait; nothing below main could be unwound while calls run.
  std::thread([] { _exit(128 + WaitForStopSignal()); }).detach();
  (*server)->Drain();
  server->reset();  // what is queued is written here, and may fail
  log.Info("stopped");
  return store_failed ? kExitFailure : 0;
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

int Main(int argc, char** argv) {
  const bool tuned = TuneAllocator();
  TuneTransport();
  SetUpSignalsAndFiles();
  const absl::StatusOr<Config> config = ParseConfig(std::vector<std::string>(argv + 1, argv + argc), Environment());
  if (!config.ok()) {
    std::cerr << "normd: " << config.status().message() << "\n";
    return kExitUsage;
  }
  if (PrintAndExit(*config)) return 0;
  if (!config->backup.empty()) return Backup(*config);
  SystemClock clock;
  Log log(LogOptionsOf(*config), &clock);
  if (!tuned) log.Warn("the allocator could not be tuned: large requests cost page faults");
  if (const absl::Status status = CheckFloatingPoint(); !status.ok()) {
    log.Error("cannot serve", {{"error", std::string(status.message())}});
    return kExitFailure;
  }
  return Serve(*config, log);
}

}  // namespace
}  // namespace normd

int main(int argc, char** argv) { return normd::Main(argc, argv); }
