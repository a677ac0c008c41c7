#include "server/config.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/base/error_reasons.h"
#include "server/listen.h"
#include "server/option_list.h"
#include "server/option_sources.h"
#include "server/shm/registrar.h"

namespace normd {
namespace {

std::string OptionName(const Option& option) { return absl::StrCat("--", std::string(option.name)); }

std::string BytesText(int64_t bytes) {
  for (const auto& [unit, name] : {std::pair(kGiB, "GiB"), std::pair(kMiB, "MiB"), std::pair(int64_t{1024}, "KiB")}) {
    if (bytes >= unit && bytes % unit == 0) return absl::StrCat(bytes / unit, name);
  }
  return absl::StrCat(bytes);
}

// The limit in words: "1KiB to 64TiB", "auto, on or off".
std::string LimitText(const Option& option) {
  if (std::holds_alternative<bool Config::*>(option.field)) return "true or false";
  if (std::holds_alternative<absl::Duration Config::*>(option.field)) {
    return absl::StrCat(option.min, "s to ", option.max, "s");
  }
  if (std::holds_alternative<int64_t Config::*>(option.field)) {
    if (option.bytes) return absl::StrCat(BytesText(option.min), " to ", BytesText(option.max));
    return absl::StrCat(option.min, " to ", option.max);
  }
  return absl::StrReplaceAll(std::string(option.choices), {{"|", ", "}});
}

// `what` says what the value is not, such as "a whole number"; it is empty if only the value's range is wrong.
absl::Status ValueError(const Option& option, std::string_view value, std::string_view what) {
  const std::string quoted = Concat("\"", value, "\"");
  const std::string limit = LimitText(option);
  return MakeError(
      ServerReason("BAD_OPTION"), {.field = OptionName(option), .value = quoted, .limit = limit},
      Concat("is ", quoted, what.empty() ? "" : ", which is not ", what, limit.empty() ? "" : "; it must be ", limit));
}

std::optional<int64_t> ParseBytes(std::string_view text) {
  constexpr std::pair<std::string_view, int64_t> kUnits[] = {
      {"KiB", 1024}, {"MiB", kMiB}, {"GiB", kGiB}, {"TiB", kGiB * 1024}};
  int64_t unit = 1;
  for (const auto& [suffix, size] : kUnits) {
    if (text.ends_with(suffix)) {
      unit = size;
      text.remove_suffix(suffix.size());
      break;
    }
  }
  int64_t value = 0;
  if (!absl::SimpleAtoi(std::string(text), &value)) return std::nullopt;
  if (value > std::numeric_limits<int64_t>::max() / unit || value < 0) return std::nullopt;
  return value * unit;
}

// Parses the text of one option into its field, with one overload for each type of field.
struct ValueReader {
  const Option& option;
  const std::string& text;
  Config& config;

  absl::Status operator()(bool Config::*field) const {
    if (absl::SimpleAtob(text, &(config.*field))) return absl::OkStatus();
    return ValueError(option, text, "");
  }
  absl::Status operator()(int64_t Config::*field) const {
    int64_t value = 0;
    if (option.bytes) {
      const std::optional<int64_t> bytes = ParseBytes(text);
      if (!bytes.has_value()) return ValueError(option, text, "a number of bytes");
      value = *bytes;
    } else if (!absl::SimpleAtoi(text, &value)) {
      return ValueError(option, text, "a whole number");
    }
    if (value < option.min || value > option.max) return ValueError(option, text, "");
    config.*field = value;
    return absl::OkStatus();
  }
  absl::Status operator()(absl::Duration Config::*field) const {
    absl::Duration value;
    if (!absl::ParseDuration(text, &value)) return ValueError(option, text, "a duration like 500ms or 30s");
    if (value < absl::Seconds(option.min) || value > absl::Seconds(option.max)) {
      return ValueError(option, text, "");
    }
    config.*field = value;
    return absl::OkStatus();
  }
  absl::Status operator()(std::string Config::*field) const {
    if (!option.choices.empty() && !text.empty()) {
      const std::vector<std::string> choices = absl::StrSplit(std::string(option.choices), '|');
      if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
        return ValueError(option, text, "");
      }
    }
    config.*field = text;
    return absl::OkStatus();
  }
  absl::Status operator()(std::vector<std::string> Config::*field) const {
    const std::vector<std::string> items = absl::StrSplit(text, ',', absl::SkipWhitespace());
    (config.*field).insert((config.*field).end(), items.begin(), items.end());
    return absl::OkStatus();
  }
};

absl::Status SetOption(const Option& option, const std::string& text, Config& config) {
  return std::visit(ValueReader{option, text, config}, option.field);
}

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

absl::Status CheckReach(std::string_view option, const std::string& text, bool plaintext) {
  NORMD_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(option, text));
  if (address.IsLocal() || plaintext) return absl::OkStatus();
  constexpr std::string_view kLimit = "a loopback address or a Unix socket, or given together with --plaintext";
  return MakeError(ServerReason("PLAINTEXT_NOT_ALLOWED"),
                   {.field = std::string(option), .value = text, .limit = std::string(kLimit)},
                   Concat("is ", text, ", which other machines could reach without TLS; it must be ", kLimit));
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
  if (config.listen.empty()) return MissingError("--listen", "at least one address");
  for (const std::string& text : config.listen) NORMD_RETURN_IF_ERROR(CheckReach("--listen", text, config.plaintext));
  if (!config.admin_listen.empty()) {
    NORMD_RETURN_IF_ERROR(CheckReach("--admin_listen", config.admin_listen, config.plaintext));
    if (config.admin_listen.starts_with("unix:")) {
      return FormError("--admin_listen", config.admin_listen, "host:port", ServerReason("BAD_ADDRESS"));
    }
  }
  NORMD_RETURN_IF_ERROR(CheckStore(config));
  NORMD_RETURN_IF_ERROR(CheckSharedMemory(config));
  NORMD_RETURN_IF_ERROR(CheckCudaDevices(config));
  if (config.max_in_flight_bytes / 3 < config.max_message_bytes) {
    return OutOfRangeError("--max_in_flight_bytes", absl::StrCat(config.max_in_flight_bytes),
                           absl::StrCat("at least three times --max_message_bytes, ", 3 * config.max_message_bytes),
                           ServerReason("BAD_OPTION"));
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
  const std::string prefix = EnvironmentName("");
  std::vector<UnknownVariable> unknown;
  for (auto it = env.lower_bound(prefix); it != env.end() && it->first.starts_with(prefix); ++it) {
    const std::string name = absl::AsciiStrToLower(it->first.substr(prefix.size()));
    // normctl and normload, which share the image, read NORMD_SERVER; Kubernetes sets NORMD_PORT, NORMD_PORT_8001_TCP,
    // NORMD_SERVICE_HOST and more for a service called normd.
    const bool elsewhere =
        name == "server" || name == "port" || name.starts_with("port_") || name.starts_with("service_");
    const std::string_view nearest = NearestOption(name);
    if (elsewhere || nearest == name) continue;
    unknown.push_back({it->first, nearest.empty() ? "" : EnvironmentName(nearest)});
  }
  return unknown;
}

absl::StatusOr<Config> ParseConfig(absl::Span<const std::string> args, const std::map<std::string, std::string>& env) {
  NORMD_ASSIGN_OR_RETURN(OptionTexts texts, ReadCommandLine(args));
  texts.merge(ReadEnvironment(env));  // Only options that the command line does not name.
  Config config;
  for (const Option& option : AllOptions()) {
    texts.try_emplace(option.name, 1, std::string(option.default_value));
    for (const std::string& text : texts[option.name]) NORMD_RETURN_IF_ERROR(SetOption(option, text, config));
  }
  config.data_dir = absl::StrReplaceAll(config.data_dir, {{"{state}", StateFolder(env)}});
  const std::string runtime = RuntimeFolder(env);
  for (std::string& text : config.listen) text = absl::StrReplaceAll(text, {{"{runtime}", runtime}});
  if (config.help.empty() && !config.version) NORMD_RETURN_IF_ERROR(CheckConfig(config));
  return config;
}

std::string HelpText() {
  std::ostringstream out;
  out << "normd serves normalisation of tensors over gRPC.\n\nOptions (--name=value; also the environment, "
         "NORMD_NAME; -h is --help):\n";
  for (const Option& option : AllOptions()) {
    out << "  --" << option.name;
    if (!option.default_value.empty()) out << " (" << option.default_value << ")";
    if (const std::string limit = LimitText(option); !limit.empty()) out << ", " << limit;
    out << "\n      " << option.help << "\n";
  }
  return out.str();
}

std::string HelpMarkdown() {
  std::ostringstream out;
  out << "| option | default | limits | meaning |\n|---|---|---|---|\n";
  for (const Option& option : AllOptions()) {
    out << "| `--" << option.name << "` | ";
    if (!option.default_value.empty()) out << "`" << option.default_value << "`";
    out << " | " << LimitText(option) << " | " << absl::StrReplaceAll(std::string(option.help), {{"|", "\\|"}})
        << " |\n";
  }
  return out.str();
}

}  // namespace normd
