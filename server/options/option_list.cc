#include "server/options/option_list.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "kernels/base/strings.h"
#include "proto/text/nearest_name.h"

namespace normd {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kMillion = 1'000'000;
constexpr int64_t kDaySeconds = 86'400;

constexpr Option kOptions[] = {
    {"listen", &Config::listen, "127.0.0.1:8001,unix:{runtime}/normd.sock",
     "Where gRPC is served: host:port, [v6]:port or unix:/path, separated by commas or repeated. Port 0 is any free "
     "one. {runtime} is $XDG_RUNTIME_DIR or /tmp/normd-<uid>."},
    {"plaintext", &Config::plaintext, "false",
     "Allow listeners that other machines can reach, the admin listener too, without TLS: only for closed networks. "
     "With tls_certificate it concerns the admin listener alone."},
    {"tls_certificate", &Config::tls_certificate, "",
     "A PEM file with the server's certificate and its intermediates: every TCP listener of listen then speaks TLS and "
     "nothing else. This file and the next two are read again every few seconds and on SIGHUP. Empty: no TLS."},
    {"tls_key", &Config::tls_key, "",
     "The PEM file with the certificate's private key, which others must not be able to read (chmod 600; of root, 440 "
     "will do)."},
    {"tls_client_ca", &Config::tls_client_ca, "",
     "A PEM file with the CAs of clients' certificates: callers over TCP must show one, or with tokens_file a token. "
     "Empty: they are not asked."},
    {"admin_listen", &Config::admin_listen, "127.0.0.1:8002",
     "Where HTTP /metrics, /healthz, /readyz and the status page are served, always in plain text. Empty: nowhere."},
    {"admin_plaintext", &Config::admin_plaintext, "false",
     "Allow an admin listener that other machines can reach. Whoever reaches it sees metrics, health and the status "
     "page, and can change nothing."},
    {"admin_hosts", &Config::admin_hosts, "",
     "Names by which callers may ask the admin listener, separated by commas or repeated, such as a service's. "
     "Addresses, "
     "localhost and the name that it listens on always will do; others are refused, so that no web page reads it."},
    {.name = "unix_socket_mode",
     .field = &Config::unix_socket_mode,
     .default_value = "0600",
     .help = "Who may call over the Unix sockets of listen: this user alone, its group, too, or everybody who reaches "
             "the folder. The folder, where normd makes it, is opened to the same, and may be one that they can write "
             "to. Memory is shared with this user alone.",
     .choices = "0600|0660|0666"},
    {"unix_socket_group", &Config::unix_socket_group, "",
     "The group of these sockets, by name or number, with mode 0660: one that this user is in. Empty: this process's."},
    {"port_file", &Config::port_file, "",
     "A file that gets one line for each bound listener, as `grpc=127.0.0.1:8001`, once all of them serve."},
    {.name = "max_message_bytes",
     .field = &Config::max_message_bytes,
     .default_value = "64MiB",
     .help = "The largest request or reply message.",
     .min = 1024,
     .max = 2 * kGiB - 1,  // protobuf's limit
     .bytes = true},
    {.name = "max_in_flight_bytes",
     .field = &Config::max_in_flight_bytes,
     .default_value = "288MiB",
     .help = "Bytes of requests and replies held at one time; beyond it calls are refused with RESOURCE_EXHAUSTED "
             "before they are read, where their size was announced. At least three times max_message_bytes.",
     .min = 1024,
     .max = int64_t{1} << 46,
     .bytes = true},
    {.name = "max_tensor_bytes",
     .field = &Config::max_tensor_bytes,
     .default_value = "1GiB",
     .help = "The largest tensor that may come in chunks on a stream, and no more than half of 15/16 of "
             "max_in_flight_bytes.",
     .min = 1,
     .max = int64_t{1} << 46,
     .bytes = true},
    {.name = "session_store",
     .field = &Config::session_store,
     .default_value = "sqlite",
     .help = "Where sessions are kept: sqlite (a file in data_dir, of one server), memory, or the URL of a PostgreSQL "
             "that several servers may share (postgres://...).",
     .has_secret = true},
    {"data_dir", &Config::data_dir, "{state}",
     "The folder of the sqlite store, made with mode 0700. {state} is $XDG_STATE_HOME/normd, $HOME/.local/state/normd "
     "or /var/lib/normd."},
    {.name = "durability",
     .field = &Config::durability,
     .default_value = "power",
     .help = "What an acknowledged update survives. power: power loss, provided the disk honours flushes. process: a "
             "crash or kill -9 of normd. memory: nothing; the store is then memory.",
     .choices = "memory|process|power"},
    {.name = "backup",
     .field = &Config::backup,
     .default_value = "",
     .help =
         "Copy the sqlite store of data_dir into this new file, check every record in it, and exit. A server may be "
         "running on it.",
     .is_command = true},
    {.name = "restore",
     .field = &Config::restore,
     .default_value = "",
     .help = "Make this file of --backup the sqlite store of data_dir, check every record in it, and exit. The store "
             "before is kept beside it. No server may be running on it.",
     .is_command = true},
    {.name = "session_idle",
     .field = &Config::session_idle,
     .default_value = "10m",
     .help = "A session that was not used for this long leaves memory; it comes back when it is used.",
     .min = 1,
     .max = 365 * kDaySeconds,
     .is_reloadable = true},
    {.name = "max_resident_bytes",
     .field = &Config::max_resident_bytes,
     .default_value = "1GiB",
     .help =
         "Memory for sessions; beyond it the least recently used leave memory. With --session_store=memory none can, "
         "and new ones are refused.",
     .min = 0,
     .max = int64_t{1} << 46,
     .bytes = true,
     .is_reloadable = true},
    {.name = "max_sessions",
     .field = &Config::max_sessions,
     .default_value = "100000",
     .help = "Sessions in the store.",
     .min = 0,
     .max = 100 * kMillion,
     .is_reloadable = true},
    {.name = "max_total_bytes",
     .field = &Config::max_total_bytes,
     .default_value = "64GiB",
     .help = "Parameters and statistics of all sessions, and 1 KiB for each.",
     .min = 0,
     .max = int64_t{1} << 50,
     .bytes = true,
     .is_reloadable = true},
    {.name = "max_parameter_bytes",
     .field = &Config::max_parameter_bytes,
     .default_value = "64MiB",
     .help = "Weight and bias of one session.",
     .min = 0,
     .max = 2 * kGiB - 1,
     .bytes = true,
     .is_reloadable = true},
    {.name = "max_clients_per_session",
     .field = &Config::max_clients_per_session,
     .default_value = "1024",
     .help = "Client ids of training steps that one session remembers.",
     .min = 1,
     .max = kMillion,
     .is_reloadable = true},
    {.name = "replay_window",
     .field = &Config::replay_window,
     .default_value = "16",
     .help = "Latest steps of each client whose outcome is kept for retries.",
     .min = 1,
     .max = 4096,
     .is_reloadable = true},
    {.name = "shared_memory",
     .field = &Config::shared_memory,
     .default_value = "unix",
     .help = "Who may keep tensors in memory that the server maps instead of sending them. unix: callers of the Unix "
             "socket. all: callers on the host over TCP, too. off: nobody.",
     .choices = "unix|all|off"},
    {.name = "max_regions",
     .field = &Config::max_regions,
     .default_value = "256",
     .help = "Shared-memory regions that are registered at one time.",
     .min = 1,
     .max = 1024},  // the size of FaultGuard's table
    {.name = "max_region_bytes",
     .field = &Config::max_region_bytes,
     .default_value = "4GiB",
     .help = "Bytes of all shared-memory regions together. They are mapped, and only their owners take memory.",
     .min = 4096,
     .max = 512 * kGiB,
     .bytes = true},
    {"shm_prefix", &Config::shm_prefix, "/normd-",
     "How POSIX shared-memory objects must be called that callers register by name: they are opened with this server's "
     "rights. Empty: none."},
    {.name = "transport",
     .field = &Config::transport,
     .default_value = "native",
     .help = "What speaks gRPC's protocol to callers. native: this server's own implementation over nghttp2. grpc: "
             "gRPC's library, which costs more and withstands fewer attacks.",
     .choices = "native|grpc"},
    {.name = "queues",
     .field = &Config::queues,
     .default_value = "0",
     .help = "Queues of the transport, one thread each. 0: half of the cores, 1 to 8.",
     .min = 0,
     .max = 64},
    {.name = "threads",
     .field = &Config::threads,
     .default_value = "0",
     .help = "Threads of the CPU backend for large work. 0: one for each core.",
     .min = 0,
     .max = 1024},
    {"max_isa", &Config::max_isa, "auto",
     "The best instruction set that the CPU kernels may use: avx3, avx2, neon or plain (C++ alone), as far as the "
     "machine has it. Results are the same bytes with each. auto: the best there is."},
    {.name = "cuda",
     .field = &Config::cuda,
     .default_value = "auto",
     .help = "Whether to compute on a GPU, too. auto: where this build and this machine can; the log says why not.",
     .choices = "auto|off"},
    {"cuda_device", &Config::cuda_device, "0",
     "Which GPUs, by the numbers that the CUDA driver gives them, separated by commas or repeated: 0 to 1023."},
    {.name = "batch_delay",
     .field = &Config::batch_delay,
     .default_value = "0s",
     .help = "How long work for the GPU may wait for more of its kind although the GPU is free; at most half of the "
             "time until its deadline. What comes while the GPU is busy is launched together in any case.",
     .min = 0,
     .max = 1},
    {.name = "max_concurrent_streams",
     .field = &Config::max_concurrent_streams,
     .default_value = "0",
     .help = "Calls of one connection at a time, streams and registrations of shared memory among them; further ones "
             "wait in the client. 0: 16, or 8 where messages may have over 4 MiB.",
     .min = 0,
     .max = 1 << 20},
    {.name = "max_connections",
     .field = &Config::max_connections,
     .default_value = "0",
     .help = "Connections at one time; a further one has its first call answered with UNAVAILABLE, and is closed. 0: "
             "8192, or what the limit of descriptors leaves when "
             "64 of them are kept for other things.",
     .min = 0,
     .max = 1 << 20},
    {.name = "max_connections_per_peer",
     .field = &Config::max_connections_per_peer,
     .default_value = "0",
     .help = "Those of one peer: an IPv4 address, a /64 of IPv6, or a user of the Unix socket. 0: half of all.",
     .min = 0,
     .max = 1 << 20},
    {.name = "max_cancels_per_second",
     .field = &Config::max_cancels_per_second,
     .default_value = "5000",
     .help = "Calls that one connection may cancel in a second, those whose deadline passes among them; beyond it the "
             "connection ends with ENHANCE_YOUR_CALM. Each costs the server about 12 us.",
     .min = 100,
     .max = kMillion},
    {.name = "setup_timeout",
     .field = &Config::setup_timeout,
     .default_value = "10s",
     .help = "A connection that has not finished HTTP/2's set-up by then is closed.",
     .min = 1,
     .max = kDaySeconds},
    {.name = "max_connection_age",
     .field = &Config::max_connection_age,
     .default_value = "0s",
     .help = "Ask clients to connect anew after this long, so that new replicas get their share; calls under way are "
             "finished. 0: never.",
     .min = 0,
     .max = kDaySeconds},
    {.name = "max_connection_idle",
     .field = &Config::max_connection_idle,
     .default_value = "0s",
     .help = "Ask clients whose connection has had no call for this long to connect anew when they have one. 0: never.",
     .min = 0,
     .max = kDaySeconds},
    {.name = "message_timeout",
     .field = &Config::message_timeout,
     .default_value = "10s",
     .help = "How long a message that has begun may make no progress before its call ends with DEADLINE_EXCEEDED; six "
             "times as long for a reply that is not read, a fifth while the budget of bytes is nearly spent.",
     .min = 1,
     .max = kDaySeconds},
    {.name = "min_message_rate",
     .field = &Config::min_message_rate,
     .default_value = "1MiB",
     .help = "Bytes a second that such a message must make after that.",
     .min = 1,
     .max = kGiB,
     .bytes = true},
    {.name = "max_queue_age",
     .field = &Config::max_queue_age,
     .default_value = "500ms",
     .help = "How long a large call may wait for its turn to be computed, and one that has said how large its message "
             "is for room to be read, before it is refused with RESOURCE_EXHAUSTED.",
     .min = 0,
     .max = kDaySeconds},
    {"tokens_file", &Config::tokens_file, "",
     "A file with the hashes of the bearer tokens that callers may show, over TLS or the Unix socket. Callers over TCP "
     "must show one then, or a client certificate. Reread when it changes."},
    {"policy_file", &Config::policy_file, "",
     "A TOML file that says who may call which methods, and who belongs to which tenant. Reread when it changes. "
     "Empty: everybody who is let in may call everything."},
    {"audit_log", &Config::audit_log, "",
     "A file that gets a line for each change of a session, each export and import, each region registered and each "
     "call denied. SIGHUP opens it anew. Empty: the lines go to the log, whatever --log_level says."},
    {.name = "make_token",
     .field = &Config::make_token,
     .default_value = "",
     .help = "Make a token of this name, add its hash to --tokens_file, print the token, which is stored nowhere, and "
             "exit.",
     .is_command = true},
    {.name = "reflection",
     .field = &Config::reflection,
     .default_value = "auto",
     .help = "Serve gRPC reflection. auto: when every listener is local.",
     .choices = "auto|on|off"},
    {.name = "drain_settle",
     .field = &Config::drain_settle,
     .default_value = "0s",
     .help = "After SIGTERM: how long to go on serving while health says NOT_SERVING, so that balancers notice.",
     .min = 0,
     .max = kDaySeconds,
     .is_reloadable = true},
    {.name = "drain_timeout",
     .field = &Config::drain_timeout,
     .default_value = "30s",
     .help = "After that: how long calls in flight may take to finish before they are cancelled.",
     .min = 0,
     .max = kDaySeconds,
     .is_reloadable = true},
    {.name = "log_level",
     .field = &Config::log_level,
     .default_value = "info",
     .help = "The least level that is logged; debug has a line for every request.",
     .choices = "debug|info|warn|error",
     .is_reloadable = true},
    {.name = "log_format",
     .field = &Config::log_format,
     .default_value = "text",
     .help = "Lines of key=value, or JSON objects; the lines of gRPC and protobuf, too.",
     .choices = "text|json",
     .is_reloadable = true},
    {.name = "slow_request",
     .field = &Config::slow_request,
     .default_value = "0s",
     .help =
         "Log each request that took longer, with its phases, up to 5 lines a second, whatever --log_level says. 0: "
         "none.",
     .min = 0,
     .max = kDaySeconds,
     .is_reloadable = true},
    {"trace_endpoint", &Config::trace_endpoint, "",
     "Where to send traces: http://host:port (plain text) or https://host:port (TLS) of an OpenTelemetry collector "
     "that takes OTLP over gRPC. Empty: nowhere."},
    {"trace_ca", &Config::trace_ca, "",
     "A PEM file with the CAs of the collector's certificate. Empty: those of the system."},
    {.name = "trace_sample",
     .field = &Config::trace_sample,
     .default_value = "0.01",
     .help = "The share of calls to trace. Callers that send a traceparent decide for theirs.",
     .min = 0,
     .max = 1,
     .is_reloadable = true},
    {kConfigFileOption, &Config::config, "",
     "A TOML file with options, named as here, below the command line and the environment; SIGHUP reads it again. "
     "`normd --help=toml` prints one with every option."},
    {.name = "check_config",
     .field = &Config::check_config,
     .default_value = "false",
     .help = "Check every option and the files of certificates, tokens and policy, print where each comes from, and "
             "exit: with 0, or with 2 and the first mistake.",
     .is_command = true},
    {.name = "help",
     .field = &Config::help,
     .default_value = "",
     .help = "Print the options (as text, as Markdown or as a file for --config), the metrics, or the reasons of "
             "errors, and exit.",
     .choices = "text|markdown|toml|metrics|errors",
     .is_command = true},
    {.name = "version",
     .field = &Config::version,
     .default_value = "false",
     .help = "Print the version and exit.",
     .is_command = true},
};

}  // namespace

absl::Span<const Option> AllOptions() { return kOptions; }

const Option* FindOption(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kOptions), std::end(kOptions),
                                         [name](const Option& option) { return option.name == name; });
  return found == std::end(kOptions) ? nullptr : found;
}

std::string BytesText(int64_t bytes) {
  for (const auto& [unit, name] : {std::pair(kGiB, "GiB"), std::pair(kMiB, "MiB"), std::pair(int64_t{1024}, "KiB")}) {
    if (bytes >= unit && bytes % unit == 0) return absl::StrCat(bytes / unit, name);
  }
  return absl::StrCat(bytes);
}

std::string LimitText(const Option& option) {
  if (std::holds_alternative<bool Config::*>(option.field)) return "true or false";
  if (std::holds_alternative<absl::Duration Config::*>(option.field)) {
    return absl::StrCat(option.min, "s to ", option.max, "s");
  }
  if (std::holds_alternative<int64_t Config::*>(option.field)) {
    if (option.bytes) return absl::StrCat(BytesText(option.min), " to ", BytesText(option.max));
    return absl::StrCat(option.min, " to ", option.max);
  }
  if (std::holds_alternative<double Config::*>(option.field)) return absl::StrCat(option.min, " to ", option.max);
  return absl::StrReplaceAll(std::string(option.choices), {{"|", ", "}});
}

std::string_view NearestOption(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Option& option : kOptions) names.push_back(option.name);
  return NearestName(name, names);
}

std::string EnvironmentName(std::string_view name) {
  return Concat("NORMD_", absl::AsciiStrToUpper(std::string(name)));
}

}  // namespace normd
