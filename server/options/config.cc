#include "server/options/config.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/admin/host_header.h"
#include "server/base/byte_size.h"
#include "server/base/error_reasons.h"
#include "server/options/config_file.h"
#include "server/options/listen.h"
#include "server/options/option_list.h"
#include "server/options/option_sources.h"
#include "server/options/option_values.h"
#include "server/shm/registrar.h"
#include "server/traces/span_exporter.h"

namespace normd {
namespace {

std::string RuntimeFolder(const std::map<std::string, std::string>& env) {
  const auto it = env.find("XDG_RUNTIME_DIR");
  if (it != env.end() && !it->second.empty()) return it->second;
  return absl::StrCat("/tmp/normd-", static_cast<int64_t>(geteuid()));
}

std::string StateFolder(const std::map<std::string, std::string>& env) {
  const auto folder = [&env](const char* variable, const char* below) {
    const auto it = env.find(variable);
    return it == env.end() || it->second.empty() ? std::string() : absl::StrCat(it->second, below);
  };
  if (std::string state = folder("XDG_STATE_HOME", "/normd"); !state.empty()) return state;
  if (std::string state = folder("HOME", "/.local/state/normd"); !state.empty()) return state;
  return "/var/lib/normd";
}

absl::Status CheckStore(const Config& config) {
  const std::string_view kind = config.StoreKind();
  if (kind.empty()) {
    // The message leaves out the value, which may be a mistyped URL with a password.
    return OutOfRangeError("--session_store", "an unknown store", "sqlite, memory, postgres://... or postgresql://...",
                           ServerReason("BAD_OPTION"));
  }
  if (kind == "postgres" && config.durability == "memory") {
    return OutOfRangeError("--durability", "memory", "process or power with PostgreSQL", ServerReason("BAD_OPTION"));
  }
  if (!config.backup.empty() && kind != "sqlite") {
    return NotAllowedError("--backup", "it copies only the sqlite store (PostgreSQL has pg_dump)");
  }
  if (!config.restore.empty() && kind != "sqlite") {
    return NotAllowedError("--restore", "it restores only the sqlite store (PostgreSQL has pg_restore)");
  }
  return absl::OkStatus();
}

absl::Status CheckSharedMemory(const Config& config) {
  const std::string& prefix = config.shm_prefix;
  if (!prefix.empty() && (prefix[0] != '/' || prefix.rfind('/') != 0 || prefix.size() > 200)) {
    return OutOfRangeError("--shm_prefix", prefix, "empty, or one slash and up to 199 other characters",
                           ServerReason("BAD_OPTION"));
  }
  if (config.shared_memory == "off") return absl::OkStatus();
  for (const std::string& text : config.listen) {
    NORMD_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress("--listen", text));
    if (address.unix_path.size() <= kMaxGrpcSocketPath) continue;
    return OutOfRangeError(
        "--listen", text, absl::StrCat("a path of at most ", kMaxGrpcSocketPath, " bytes, or with --shared_memory=off"),
        ServerReason("PATH_TOO_LONG"));
  }
  return absl::OkStatus();
}

// `limit` says what is allowed: loopback addresses always are, and all others if `allowed`.
absl::Status CheckReach(std::string_view option, const std::string& text, bool allowed, std::string_view limit) {
  NORMD_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(option, text));
  if (address.IsLocal() || allowed) return absl::OkStatus();
  return MakeError(ServerReason("PLAINTEXT_NOT_ALLOWED"),
                   {.field = std::string(option), .value = text, .limit = std::string(limit)},
                   Concat("is ", text, ", which other machines could reach without TLS; it must be ", limit));
}

absl::Status CheckListeners(const Config& config) {
  const bool tls = !config.tls_certificate.empty();
  if (config.listen.empty()) return MissingError("--listen", "at least one address");
  for (const std::string& text : config.listen) {
    NORMD_RETURN_IF_ERROR(CheckReach("--listen", text, tls || config.plaintext,
                                     "a loopback address or a Unix socket, or given together with --tls_certificate "
                                     "or --plaintext"));
  }
  if (config.admin_listen.empty()) return absl::OkStatus();
  NORMD_RETURN_IF_ERROR(CheckReach("--admin_listen", config.admin_listen, config.admin_plaintext || config.plaintext,
                                   "a loopback address, or given together with --admin_plaintext or --plaintext"));
  if (!config.admin_listen.starts_with("unix:")) return absl::OkStatus();
  return FormError("--admin_listen", config.admin_listen, "host:port", ServerReason("BAD_ADDRESS"));
}

absl::Status CheckUnixSockets(const Config& config) {
  if (config.unix_socket_group.empty() || config.unix_socket_mode == "0660") return absl::OkStatus();
  return NotAllowedError("--unix_socket_group", "a group matters with --unix_socket_mode=0660 alone");
}

absl::Status CheckAdminHosts(const Config& config) {
  for (const std::string& name : config.admin_hosts) {
    if (HasHostNameForm(name)) continue;
    return FormError("--admin_hosts", name, "names without a port, of a-z 0-9 . - _", ServerReason("BAD_OPTION"));
  }
  return absl::OkStatus();
}

absl::Status CheckTls(const Config& config) {
  if (config.tls_certificate.empty() && !config.tls_key.empty()) {
    return MissingError("--tls_certificate", "the certificate of --tls_key");
  }
  if (config.tls_key.empty() && !config.tls_certificate.empty()) {
    return MissingError("--tls_key", "the key of --tls_certificate");
  }
  if (config.tls_certificate.empty() && !config.tls_client_ca.empty()) {
    return MissingError("--tls_certificate", "the server's own, which --tls_client_ca needs");
  }
  return absl::OkStatus();
}

absl::Status CheckTraces(const Config& config) {
  if (config.trace_endpoint.empty()) {
    return config.trace_ca.empty() ? absl::OkStatus() : MissingError("--trace_endpoint", "the collector of --trace_ca");
  }
  NORMD_ASSIGN_OR_RETURN(const CollectorAddress collector,
                         ParseCollectorAddress("--trace_endpoint", config.trace_endpoint));
  if (config.trace_ca.empty() || collector.tls) return absl::OkStatus();
  return NotAllowedError("--trace_ca", "--trace_endpoint is http://, which has no certificate");
}

absl::Status CheckCudaDevices(const Config& config) {
  constexpr int kMostDevice = 1023;
  if (config.cuda == "off") return absl::OkStatus();
  if (config.cuda_device.empty()) return MissingError("--cuda_device", "at least one number, or --cuda=off");
  std::vector<int> numbers;
  for (const std::string& text : config.cuda_device) {
    int number = 0;
    if (!absl::SimpleAtoi(text, &number) || number < 0 || number > kMostDevice) {
      return FormError("--cuda_device", text, absl::StrCat("integers from 0 to ", kMostDevice),
                       ServerReason("BAD_OPTION"));
    }
    if (std::find(numbers.begin(), numbers.end(), number) != numbers.end()) {
      return FormError("--cuda_device", text, "each device once", ServerReason("BAD_OPTION"));
    }
    numbers.push_back(number);
  }
  return absl::OkStatus();
}

// The checks that concern several options or need more than an option's own limits.
absl::Status CheckConfig(const Config& config) {
  NORMD_RETURN_IF_ERROR(CheckListeners(config));
  NORMD_RETURN_IF_ERROR(CheckUnixSockets(config));
  NORMD_RETURN_IF_ERROR(CheckTls(config));
  NORMD_RETURN_IF_ERROR(CheckAdminHosts(config));
  NORMD_RETURN_IF_ERROR(CheckStore(config));
  NORMD_RETURN_IF_ERROR(CheckSharedMemory(config));
  NORMD_RETURN_IF_ERROR(CheckTraces(config));
  NORMD_RETURN_IF_ERROR(CheckCudaDevices(config));
  if (config.max_in_flight_bytes / 3 < config.max_message_bytes) {
    return OutOfRangeError("--max_in_flight_bytes", absl::StrCat(config.max_in_flight_bytes),
                           absl::StrCat("at least three times --max_message_bytes, ", 3 * config.max_message_bytes),
                           ServerReason("BAD_OPTION"));
  }
  return absl::OkStatus();
}

// What one source says of an option.
struct Given {
  std::vector<std::string> texts;
  OptionOrigin origin;
};
using GivenOptions = std::map<std::string_view, Given>;

// The error with the name that the option has in its source in place of the flag's name. The detail keeps the latter.
absl::Status AtOrigin(const absl::Status& status, const GivenOptions& given) {
  const std::optional<ErrorDetail> detail = GetErrorDetail(status);
  if (!detail.has_value() || !detail->field.starts_with("--")) return status;
  const auto it = given.find(std::string_view(detail->field).substr(2));
  const std::string message(status.message());
  if (it == given.end() || !message.starts_with(detail->field)) return status;
  absl::Status result(status.code(), it->second.origin.name + message.substr(detail->field.size()));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) { result.SetPayload(url, payload); });
  return result;
}

// Adds the options of the file that --config names and that no other source has.
absl::Status AddFile(GivenOptions& given) {
  const auto named = given.find(kConfigFileOption);
  if (named == given.end() || named->second.texts.back().empty()) return absl::OkStatus();
  const std::string path = named->second.texts.back();
  absl::StatusOr<FileOptions> file = ReadConfigFile(path);
  if (!file.ok()) return AtOrigin(file.status(), given);
  for (auto& [name, option] : *file) {
    given.try_emplace(
        name, Given{std::move(option.texts),
                    {.place = Concat(path, ":", option.line), .name = FileOptionName(path, option.line, name)}});
  }
  return absl::OkStatus();
}

// What is given for each option by the source that wins: the command line, the environment, or the file.
absl::StatusOr<GivenOptions> GatherOptions(absl::Span<const std::string> args,
                                           const std::map<std::string, std::string>& env) {
  NORMD_ASSIGN_OR_RETURN(OptionTexts flags, ReadCommandLine(args));
  GivenOptions given;
  for (auto& [name, texts] : flags) given[name] = {std::move(texts), {.place = "flag", .name = Concat("--", name)}};
  for (auto& [name, texts] : ReadEnvironment(env)) {
    given.try_emplace(name, Given{texts, {.place = "environment", .name = EnvironmentName(name)}});
  }
  // --help and --version answer whatever the file contains.
  if (!given.contains("help") && !given.contains("version")) NORMD_RETURN_IF_ERROR(AddFile(given));
  return given;
}

// Sets every option from its source, or else from its default.
absl::Status SetOptions(const GivenOptions& given, Config& config) {
  for (const Option& option : AllOptions()) {
    const auto it = given.find(option.name);
    if (it == given.end()) {
      NORMD_RETURN_IF_ERROR(SetOption(option, std::string(option.default_value), config));
      continue;
    }
    config.origins.emplace(option.name, it->second.origin);
    for (const std::string& text : it->second.texts) NORMD_RETURN_IF_ERROR(SetOption(option, text, config));
  }
  return absl::OkStatus();
}

}  // namespace

bool Config::ReflectionOn() const {
  if (reflection != "auto") return reflection == "on";
  return std::all_of(listen.begin(), listen.end(), [](const std::string& text) {
    const absl::StatusOr<ListenAddress> address = ParseListenAddress("--listen", text);
    return address.ok() && address->IsLocal();
  });
}

std::string_view Config::StoreKind() const {
  if (session_store.starts_with("postgres://") || session_store.starts_with("postgresql://")) return "postgres";
  if (session_store != "sqlite" && session_store != "memory") return "";
  return durability == "memory" ? "memory" : std::string_view(session_store);
}

std::vector<int> Config::CudaDevices() const {
  std::vector<int> devices;
  for (const std::string& text : cuda_device) {
    if (int number = 0; absl::SimpleAtoi(text, &number)) devices.push_back(number);
  }
  return devices;
}

bool Config::SharedMemoryOn() const {
  if (shared_memory != "unix") return shared_memory == "all";
  return std::any_of(listen.begin(), listen.end(), [](const std::string& text) { return text.starts_with("unix:"); });
}

std::vector<UnknownVariable> UnknownVariables(const std::map<std::string, std::string>& env) {
  constexpr std::string_view kOfClients[] = {"server", "tls",         "ca",         "certificate",
                                             "key",    "server_name", "token_file", "token"};
  const std::string prefix = EnvironmentName("");
  std::vector<UnknownVariable> unknown;
  for (auto it = env.lower_bound(prefix); it != env.end() && it->first.starts_with(prefix); ++it) {
    const std::string name = absl::AsciiStrToLower(it->first.substr(prefix.size()));
    // normctl and normload, which share the image, read kOfClients; Kubernetes sets NORMD_PORT, NORMD_PORT_8001_TCP,
    // NORMD_SERVICE_HOST and more for a service called normd.
    const bool elsewhere = std::find(std::begin(kOfClients), std::end(kOfClients), name) != std::end(kOfClients) ||
                           name == "port" || name.starts_with("port_") || name.starts_with("service_");
    const std::string_view nearest = NearestOption(name);
    if (elsewhere || nearest == name) continue;
    unknown.push_back({it->first, nearest.empty() ? "" : EnvironmentName(nearest)});
  }
  return unknown;
}

absl::StatusOr<Config> ParseConfig(absl::Span<const std::string> args, const std::map<std::string, std::string>& env) {
  NORMD_ASSIGN_OR_RETURN(const GivenOptions given, GatherOptions(args, env));
  Config config;
  if (const absl::Status status = SetOptions(given, config); !status.ok()) return AtOrigin(status, given);
  config.data_dir = absl::StrReplaceAll(config.data_dir, {{"{state}", StateFolder(env)}});
  const std::string runtime = RuntimeFolder(env);
  for (std::string& name : config.admin_hosts) absl::AsciiStrToLower(&name);
  for (std::string& text : config.listen) text = absl::StrReplaceAll(text, {{"{runtime}", runtime}});
  if (!config.help.empty() || config.version) return config;
  if (const absl::Status status = CheckConfig(config); !status.ok()) return AtOrigin(status, given);
  return config;
}

}  // namespace normd
