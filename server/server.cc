#include "server/server.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/targets.h"
#include "kernels/plan.h"
#include "server/base/random_hex.h"
#include "server/base/version.h"
#include "server/obs/process.h"
#include "server/options/option_list.h"
#include "server/options/option_values.h"
#include "server/process_setup.h"
#include "server/wiring/make_store.h"
#include "server/wiring/registrar_hooks.h"
#include "server/wiring/security_files.h"
#include "server/wiring/telemetry.h"

namespace normd {
namespace {

// Says which failures the sessions survive, in the words of server/session/README.md and --durability.
std::string_view DurabilityText(Durability durability) {
  switch (durability) {
    case Durability::kMemory:
      return "memory: survives nothing but the process staying alive";
    case Durability::kProcess:
      return "process: survives a crash or kill -9 of normd";
    case Durability::kPower:
      return "power: survives power loss provided the disk honours flushes";
  }
  return "";
}

// The number of large calls added for GPUs: enough to fill the next launches while others run.
constexpr int kDeviceLargeCalls = 256;

// How often the IdleTrimmer, which waits for several quiet looks, checks for memory to give back.
constexpr absl::Duration kTrimInterval = absl::Seconds(1);

// How often the tokens file and the policy file are looked at.
constexpr absl::Duration kRulesWatchInterval = absl::Seconds(2);
// How often the files of certificates are looked at.
constexpr absl::Duration kCertificateInterval = absl::Seconds(5);

std::string HostPort(const ListenAddress& address, int port) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return absl::StrCat(v6 ? "[" : "", address.host, v6 ? "]" : "", ":", port);
}

absl::Status ListenError(const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("--listen: ", status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Config& config, Log* log,
                                                      std::function<void()> on_store_failed) {
  std::unique_ptr<Server> server(new Server(config, log));
  NORMD_RETURN_IF_ERROR(server->Serve(std::move(on_store_failed)));
  return server;
}

Server::Server(const Config& config, Log* log)
    : config_(config),
      log_(log),
      start_time_(clock_.Now()),
      metrics_(DefaultMetricsOptions()),
      backend_(OpenBackend(config, &metrics_, log, &steady_clock_)),
      // Messages in flight may take as much, so blocks that wait for the next ones may, too. 16 calls of 16 MiB in
      // flight cost 2.5 times the CPU time where 64 MiB are kept: every page is faulted in again.
      resources_(Resources::kMaxIdleBufferBytes, config.max_in_flight_bytes) {}

Server::~Server() {
  rules_watch_.reset();
  trimmer_.reset();
  admin_.reset();
  grpc_.reset();
  shared_memory_.reset();
  for (const std::string& path : unix_paths_) RemoveUnixSocket(path);
}

absl::Status Server::OpenStore(std::function<void()> on_store_failed) {
  StoreObserver observer = MakeStoreObserver(&metrics_, log_);
  observer.on_error = [this](const absl::Status& status) {
    store_trouble_.Note(status, clock_.Now());
    LogFields fields = {{"error", std::string(status.message())}};
    if (std::string place = StorePlace(); !place.empty()) fields.emplace_back("place", std::move(place));
    log_->Error("session store", fields);
  };
  observer.on_group = [this, on_group = std::move(observer.on_group)](int64_t changes, absl::Duration duration) {
    store_trouble_.Clear();
    on_group(changes, duration);
  };
  observer.on_failed = [log = log_, on_store_failed = std::move(on_store_failed)](std::string_view why) {
    log->Error(absl::StrCat(std::string(why), ": no more changes are taken, the server ends"));
    if (on_store_failed != nullptr) on_store_failed();
  };
  NORMD_ASSIGN_OR_RETURN(sessions_, OpenSessionStore(config_, std::move(observer), &clock_, &quotas_));
  // Two calls per thread, so that no thread idles while its next call is handed over.
  const int large_calls =
      2 * static_cast<int>(BackendThreads(config_)) + (backend_.gpus.empty() ? 0 : kDeviceLargeCalls);
  const EngineOptions options = {.max_large_calls = large_calls,
                                 .max_queue_age = config_.max_queue_age,
                                 .observer = MakeEngineObserver(&metrics_)};
  engine_ = std::make_unique<Engine>(backend_.scheduler.get(), sessions_.get(), &resources_, options);
  return absl::OkStatus();
}

absl::Status Server::Serve(std::function<void()> on_store_failed) {
  NORMD_RETURN_IF_ERROR(OpenSecurity());
  NORMD_RETURN_IF_ERROR(OpenStore(std::move(on_store_failed)));
  LogStart();
  NORMD_RETURN_IF_ERROR(OpenCertificates());
  NORMD_ASSIGN_OR_RETURN(tracing_, Tracing::Open(config_, log_, &clock_));
  NORMD_RETURN_IF_ERROR(ServeAdmin());
  NORMD_RETURN_IF_ERROR(ServeGrpc());
  trimmer_ = std::make_unique<PeriodicTrimmer>(MakeTrimmerHooks(), kTrimInterval);
  state_ = ServingState::kServing;
  LogSharedMemory();
  for (const std::string& listener : listeners_) log_->Info(absl::StrCat("listening ", listener));
  if (!config_.port_file.empty()) NORMD_RETURN_IF_ERROR(WritePortFile());
  log_->Info("serving");
  return absl::OkStatus();
}

absl::Status Server::OpenSecurity() {
  NORMD_ASSIGN_OR_RETURN(audit_, AuditLog::Open(config_.audit_log, log_->format(), &clock_));
  AccessOptions options = AccessOptionsOf(config_);
  options.on_change = [this, log_change = MakeRulesObserver(log_)](RulesFile file, const absl::Status& status) {
    log_change(file, status);
    SetQuotas();
  };
  NORMD_ASSIGN_OR_RETURN(access_, AccessControl::Open(std::move(options), &clock_));
  SetQuotas();
  if (config_.tokens_file.empty() && config_.policy_file.empty()) return absl::OkStatus();
  rules_watch_ = std::make_unique<PeriodicThread>(kRulesWatchInterval, [this] { access_->Watch(); });
  return absl::OkStatus();
}

absl::Status Server::OpenCertificates() {
  if (config_.tls_certificate.empty()) return absl::OkStatus();
  NORMD_ASSIGN_OR_RETURN(certificates_, ServerCertificates::Open(CertificatePathsOf(config_), kCertificateInterval,
                                                                 &clock_, MakeCertificateObserver(log_)));
  return absl::OkStatus();
}

void Server::SetQuotas() {
  MutexLock lock(set_quotas_mu_);
  TenantQuotaTable::ByTenant quotas;
  std::vector<std::string> tenants;
  if (const AccessRulesPtr rules = access_->rules(); rules->policy().has_value()) {
    for (const TenantPolicy& tenant : rules->policy()->tenants) {
      quotas.emplace(tenant.name, tenant.quotas);
      tenants.push_back(tenant.name);
    }
  }
  metrics_.KnowTenants(tenants);
  quotas_.Set(std::move(quotas));
}

void Server::ReloadFiles() {
  if (certificates_ != nullptr) certificates_->Reload().IgnoreError();  // the observer has logged it
  access_->Reload();
  if (const absl::Status status = audit_->Reopen(); !status.ok()) {
    log_->Warn("the audit log goes on in its old file", {{"error", std::string(status.message())}});
  }
}

absl::Status Server::ServeAdmin() {
  if (config_.admin_listen.empty()) return absl::OkStatus();
  NORMD_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress("--admin_listen", config_.admin_listen));
  AdminPages pages;
  pages.metrics = [this] {
    ReadStats(/*scrape=*/true);
    return metrics_.Text();
  };
  pages.peek = [this] {
    ReadStats(/*scrape=*/false);
    return MetricReading(metrics_.Collect());
  };
  pages.state = [this] { return State(); };
  pages.status = [this] { return Status(); };
  NORMD_ASSIGN_OR_RETURN(admin_, AdminServer::Start(address.host, address.port, std::move(pages), config_.admin_hosts));
  listeners_.push_back(absl::StrCat("admin=", HostPort(address, admin_->port())));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ListenAddress>> Server::PrepareListeners() {
  std::vector<ListenAddress> addresses;
  NORMD_ASSIGN_OR_RETURN(socket_access_, ParseUnixSocketAccess(config_.unix_socket_mode, config_.unix_socket_group));
  for (const std::string& text : config_.listen) {
    NORMD_ASSIGN_OR_RETURN(ListenAddress address, ParseListenAddress("--listen", text));
    if (!address.unix_path.empty()) {
      NORMD_RETURN_IF_ERROR(PrepareUnixSocket(address.unix_path, socket_access_));
      unix_paths_.push_back(address.unix_path);
    }
    addresses.push_back(std::move(address));
  }
  if (config_.SharedMemoryOn()) {
    CudaOpener cuda = CudaIpcOpener(backend_.cuda_devices, log_);
    NORMD_ASSIGN_OR_RETURN(shared_memory_,
                           SharedMemory::Start(config_, unix_paths_, std::move(cuda), &resources_.work_pool,
                                               {&quotas_, MakeRegistrarHooks(access_.get(), audit_.get())}));
  }
  return addresses;
}

absl::Status Server::ServeGrpc() {
  NORMD_ASSIGN_OR_RETURN(const std::vector<ListenAddress> addresses, PrepareListeners());
  RpcOptions options;
  options.listeners = config_.listen;
  options.certificates = certificates_.get();
  options.require_client_certificate = config_.tokens_file.empty();  // a token does as well
  options.transport = config_.transport == "grpc" ? TransportKind::kGrpc : TransportKind::kNative;
  options.queues = static_cast<int>(config_.queues);
  options.max_message_bytes = config_.max_message_bytes;
  options.max_in_flight_bytes = config_.max_in_flight_bytes;
  options.max_concurrent_streams = static_cast<int>(config_.max_concurrent_streams);
  options.max_connections = static_cast<int>(config_.max_connections);
  options.max_connections_per_peer = static_cast<int>(config_.max_connections_per_peer);
  options.max_cancels_per_second = static_cast<double>(config_.max_cancels_per_second);
  options.setup_timeout = config_.setup_timeout;
  if (config_.max_connection_idle > absl::ZeroDuration()) options.max_connection_idle = config_.max_connection_idle;
  if (config_.max_connection_age > absl::ZeroDuration()) options.max_connection_age = config_.max_connection_age;
  options.message_timeout = config_.message_timeout;
  options.min_message_rate = config_.min_message_rate;
  options.max_wait_for_room = config_.max_queue_age;
  options.max_tensor_bytes = config_.max_tensor_bytes;
  options.regions = shared_memory_ == nullptr ? nullptr : &shared_memory_->table();
  options.shared_memory_anywhere = config_.shared_memory == "all";
  options.access = access_.get();
  options.reflection = config_.ReflectionOn();
  options.server_version = std::string(Version());
  options.server_uid = RandomHex(4);
  if (shared_memory_ != nullptr && !unix_paths_.empty()) options.unix_socket = unix_paths_.front();
  options.devices = backend_.devices;
  options.calibration = [scheduler = backend_.scheduler.get()] { return scheduler->Calibration(); };
  options.observer = MakeObserver(&metrics_, log_, audit_.get(), tracing_.get());
  options.quotas = &quotas_;
  absl::StatusOr<std::unique_ptr<RpcServer>> grpc = RpcServer::Start(std::move(options), engine_.get(), &resources_);
  if (!grpc.ok()) return ListenError(grpc.status());
  grpc_ = *std::move(grpc);
  for (const std::string& path : unix_paths_) NORMD_RETURN_IF_ERROR(RestrictUnixSocket(path, socket_access_));
  for (size_t i = 0; i < addresses.size(); ++i) {
    const ListenAddress& address = addresses[i];
    listeners_.push_back(
        absl::StrCat("grpc=", address.unix_path.empty() ? HostPort(address, grpc_->ports()[i]) : address.text));
  }
  return absl::OkStatus();
}

// Writes a temporary file and renames it, so that a reader who waits for the port file sees all of it.
absl::Status Server::WritePortFile() const {
  const std::string temporary = absl::StrCat(config_.port_file, ".new");
  std::ofstream file(temporary, std::ios::trunc);
  for (const std::string& listener : listeners_) file << listener << "\n";
  file.close();
  if (!file.fail() && std::rename(temporary.c_str(), config_.port_file.c_str()) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("--port_file: cannot write ", config_.port_file));
}

void Server::LogStart() const {
  log_->Info("starting", {{"version", Version()},
                          {"numerics", kNumerics},
                          {"isa", ActiveCpuTargetName()},
                          {"threads", BackendThreads(config_)},
                          {"queues", config_.queues != 0 ? config_.queues : DefaultQueues()},
                          {"max_message_bytes", config_.max_message_bytes},
                          {"reflection", config_.ReflectionOn() ? "on" : "off"}});
  for (const DeviceInfo& device : backend_.devices) {
    log_->Info("device", {{"name", device.name}, {"usable", device.usable ? "yes" : "no"}, {"detail", device.detail}});
  }
  log_->Info("device scheduler", {{"calibration", backend_.scheduler->Calibration()}});
  const StoreStats stats = sessions_->stats();
  log_->Info("session store", {{"kind", config_.StoreKind()},
                               {"place", StorePlace()},
                               {"durability", DurabilityText(sessions_->durability())},
                               {"sessions", stats.sessions}});
}

void Server::LogSharedMemory() const {
  const bool on = shared_memory_ != nullptr;
  log_->Info("shared memory", {{"for", on ? config_.shared_memory : "off"},
                               {"max_regions", on ? config_.max_regions : 0},
                               {"max_region_bytes", on ? config_.max_region_bytes : 0}});
}

void Server::Reload(const Config& config) {
  int64_t changed = 0, waiting = 0;
  for (const Option& option : AllOptions()) {
    if (SameValue(option, config_, config)) continue;
    const LogFields fields = {
        {"name", option.name}, {"from", ValueText(option, config_)}, {"to", ValueText(option, config)}};
    if (option.is_reloadable) {
      log_->Info("option changed", fields);
      MutexLock lock(reload_mu_);
      CopyValue(option, config, config_);
      ++changed;
    } else {
      log_->Warn("a changed option needs a restart", fields);
      ++waiting;
    }
  }
  tracing_->Reload(config_);
  sessions_->SetLimits(LimitsOf(config_, &quotas_), ResidencyOf(config_));
  {
    MutexLock lock(reload_mu_);
    ++reloads_.reloads;
    reloads_.stale = 0;
  }
  log_->Info("options reloaded", {{"changed", changed}, {"need_restart", waiting}});
}

void Server::RefuseReload(const absl::Status& why) {
  {
    MutexLock lock(reload_mu_);
    ++reloads_.failures;
    reloads_.stale = 1;
  }
  log_->Error("cannot reload: all options stay as they are", {{"error", std::string(why.message())}});
}

void Server::Drain() {
  state_ = ServingState::kDraining;
  grpc_->SetServing(false);
  log_->Info("draining", {{"settle", absl::FormatDuration(config_.drain_settle)},
                          {"timeout", absl::FormatDuration(config_.drain_timeout)}});
  absl::SleepFor(config_.drain_settle);
  grpc_->Shutdown(config_.drain_timeout);
  if (shared_memory_ != nullptr) shared_memory_->Stop();
  log_->Info("drained");
}

void Server::ReadStats(bool scrape) {
  Stats stats;
  stats.store = sessions_->stats();
  stats.process = ReadProcessStats();
  stats.access = access_->stats();
  stats.undecided = {backend_.undecided->by_pairs, backend_.undecided->by_integers};
  {
    MutexLock lock(reload_mu_);
    stats.config = reloads_;
  }
  // While the state is kStarting, Start is still making these members.
  if (state_ != ServingState::kStarting) {
    stats.connections = grpc_->connections();
    stats.queues = grpc_->TakeQueueStats();
    stats.in_flight_bytes = grpc_->in_flight_bytes();
    stats.waiting = {grpc_->waiting_reads(), engine_->wait_stats(), backend_.scheduler->wait_stats(),
                     stats.store.changes, stats.store.reads};
    // A look at the status page must not hide the longest callback from Prometheus.
    longest_callback_ = std::max(longest_callback_, stats.queues.longest_callback);
    stats.queues.longest_callback = longest_callback_;
    if (scrape) longest_callback_ = absl::ZeroDuration();
    if (shared_memory_ != nullptr) stats.regions = shared_memory_->table().stats();
    stats.spans = tracing_->stats();
    if (certificates_ != nullptr) stats.certificates = certificates_->stats();
  }
  stats.tenants = StatsOfTenants();
  metrics_.SetStats(stats);
}

TenantStats Server::StatsOfTenants() const {
  TenantStats stats;
  for (const auto& [tenant, totals] : sessions_->tenant_totals()) {
    stats.sessions.emplace(tenant, totals.sessions);
    stats.session_bytes.emplace(tenant, totals.bytes);
  }
  if (state_ != ServingState::kStarting) stats.in_flight_bytes = grpc_->bytes_by_tenant();
  stats.refusals = quotas_.refusals();
  return stats;
}

TrimmerHooks Server::MakeTrimmerHooks() {
  return {.in_flight_bytes = [this] { return grpc_->in_flight_bytes(); },
          .moved_bytes = [this] { return metrics_.moved_bytes(); },
          .unused_bytes =
              [this] {
                const BufferPool& buffers = *resources_.buffers;
                return ReadResidentBytes() - AllocatedBytes() - buffers.mapped_bytes() + buffers.idle_bytes();
              },
          .trim =
              [this] {
                resources_.buffers->DropIdle();
                TrimMemory();
              }};
}

// Asks whether new connections are served, so that "serving" is observed and not just remembered.
ServingState Server::State() const {
  const ServingState state = state_;
  return state == ServingState::kServing && !grpc_->Serves() ? ServingState::kUnreachable : state;
}

std::string Server::StorePlace() const {
  if (config_.StoreKind() != "sqlite") return "";
  struct statvfs disk = {};
  if (statvfs(config_.data_dir.c_str(), &disk) != 0) return config_.data_dir;
  const uint64_t left = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
  return absl::StrCat(config_.data_dir, ", ", left >> 20, " MiB left");
}

std::vector<std::string> Server::Problems() const {
  std::vector<std::string> problems;
  if (const std::optional<std::string> trouble = store_trouble_.Text(); trouble.has_value()) {
    problems.push_back(absl::StrCat(*trouble, " (", StorePlace(), ")"));
  }
  if (sessions_->stats().file_damaged) problems.emplace_back("the session store's file is damaged: restore a backup");
  if (certificates_ != nullptr && certificates_->stats().expiry <= absl::Now()) {
    problems.push_back(
        absl::StrCat("the certificate has expired, on ",
                     absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", certificates_->stats().expiry, absl::UTCTimeZone())));
  }
  MutexLock lock(reload_mu_);
  if (reloads_.stale != 0) problems.emplace_back("the options could not be read again: the log says why");
  return problems;
}

StatusFacts Server::Status() const {
  const ServingState state = State();
  // While the state is kStarting, Start is still writing the list.
  const bool started = state != ServingState::kStarting;
  StatusFacts status;
  status.facts = {{"version", std::string(Version())},
                  {"state", std::string(Name(state))},
                  {"uptime", absl::FormatDuration(absl::Trunc(absl::Now() - start_time_, absl::Seconds(1)))},
                  {"numerics", std::string(kNumerics)},
                  {"instruction set", std::string(ActiveCpuTargetName())},
                  {"listeners", started ? absl::StrJoin(listeners_, ", ") : ""},
                  {"session store", std::string(DurabilityText(sessions_->durability()))}};
  if (std::string place = StorePlace(); !place.empty()) status.facts.emplace_back("store's place", std::move(place));
  if (started) status.problems = Problems();
  for (const DeviceInfo& device : backend_.devices) {
    status.devices.emplace_back(device.name, absl::StrCat(device.usable ? "" : "not used: ", device.detail));
  }
  const auto number = [](auto value) { return static_cast<double>(value); };
  MutexLock lock(reload_mu_);
  status.limits = {
      {"bytes in flight", "normd_in_flight_bytes", number(config_.max_in_flight_bytes), /*bytes=*/true},
      {"sessions", "normd_sessions", number(config_.max_sessions)},
      {"bytes of sessions", "normd_session_bytes", number(sessions_->limits().max_total_bytes), /*bytes=*/true},
      {"resident bytes", "normd_resident_session_bytes", number(config_.max_resident_bytes), true},
      {"shared-memory regions", "normd_shared_memory_regions", number(config_.max_regions)},
      {"shared-memory bytes", "normd_shared_memory_bytes", number(config_.max_region_bytes), true},
      {"descriptors", "process_open_fds", number(ReadProcessStats().max_fds)}};
  if (config_.max_connections > 0) {
    status.limits.push_back({"connections", "normd_connections", number(config_.max_connections)});
  }
  return status;
}

}  // namespace normd
