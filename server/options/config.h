// The values of `normd`'s options: a plain struct, filled from the list of options (option_list.h) that also makes
// --help and the table in server/README.md.
// In the path: main parses the options, once more at each SIGHUP, and the wiring reads the values.
// Threads: the functions are pure, and a Config is a plain value.
#ifndef NORMD_SERVER_OPTIONS_CONFIG_H_
#define NORMD_SERVER_OPTIONS_CONFIG_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace normd {

// Where the value of an option comes from.
struct OptionOrigin {
  std::string place;  // "flag", "environment", "/etc/normd.toml:3"
  std::string name;   // the option as errors name it: "--queues", "NORMD_QUEUES", "/etc/normd.toml:3: queues"
};

// Every default is in option_list.cc, so only ParseConfig makes a usable Config.
struct Config {
  std::vector<std::string> listen;  // "127.0.0.1:8001", "[::1]:8001", "unix:/run/normd.sock"
  bool plaintext = false;
  std::string tls_certificate;  // a path; empty: no TLS
  std::string tls_key;          // a path; empty exactly if tls_certificate is
  std::string tls_client_ca;    // a path; empty: clients are not asked for certificates
  std::string admin_listen;     // empty: no admin listener
  bool admin_plaintext = false;
  std::vector<std::string> admin_hosts;  // in lower case
  std::string unix_socket_mode;          // "0600", "0660", "0666"
  std::string unix_socket_group;         // a name or a number; empty: this process's
  std::string port_file;                 // empty: no port file
  int64_t max_message_bytes = 0;
  int64_t max_in_flight_bytes = 0;
  int64_t max_tensor_bytes = 0;
  std::string session_store;  // "sqlite", "memory", "postgres://..." or "postgresql://..."
  std::string data_dir;
  std::string durability;  // "memory", "process", "power"
  std::string backup;      // empty: serve; otherwise copy the store into this file and exit
  std::string restore;     // empty: serve; otherwise make this backup the store and exit
  absl::Duration session_idle;
  int64_t max_resident_bytes = 0;
  int64_t max_sessions = 0;
  int64_t max_total_bytes = 0;
  int64_t max_parameter_bytes = 0;
  int64_t max_clients_per_session = 0;
  int64_t replay_window = 0;
  std::string shared_memory;  // "unix", "all", "off"
  int64_t max_regions = 0;
  int64_t max_region_bytes = 0;
  std::string shm_prefix;                // of POSIX names; empty: no POSIX object may be registered
  std::string transport;                 // "native", "grpc"
  int64_t queues = 0;                    // 0: chosen from the cores
  int64_t threads = 0;                   // 0: all cores
  std::string max_isa;                   // "auto", or the name of a CPU target
  std::string cuda;                      // "auto", "off"
  std::vector<std::string> cuda_device;  // device numbers, which CudaDevices parses
  absl::Duration batch_delay;
  std::string tokens_file;  // empty: tokens are not taken
  std::string policy_file;  // empty: everybody who is let in may call everything
  std::string audit_log;    // empty: among the lines of the log
  std::string make_token;   // empty: serve; otherwise make a token of this name and exit
  std::string reflection;   // "auto", "on", "off"
  int64_t max_concurrent_streams = 0;
  int64_t max_connections = 0;           // 0: what the descriptor limit allows
  int64_t max_connections_per_peer = 0;  // 0: half of all connections
  int64_t max_cancels_per_second = 0;
  absl::Duration setup_timeout;
  absl::Duration max_connection_age;   // 0: unlimited
  absl::Duration max_connection_idle;  // 0: unlimited
  absl::Duration message_timeout;
  int64_t min_message_rate = 0;  // bytes a second
  absl::Duration max_queue_age;
  absl::Duration drain_settle;
  absl::Duration drain_timeout;
  std::string log_level;        // "debug", "info", "warn", "error"
  std::string log_format;       // "text", "json"
  absl::Duration slow_request;  // 0: none is logged
  std::string trace_endpoint;   // a URL; empty: no traces
  std::string trace_ca;         // a path; empty: the system's CAs
  double trace_sample = 0;
  std::string config;         // the file of options; empty: none
  bool check_config = false;  // print where values come from and exit
  std::string help;      // empty: serve; otherwise print "text", "markdown", "toml", "metrics" or "errors" and exit
  bool version = false;  // print and exit
  // By name, of the options that do not have their default.
  std::map<std::string_view, OptionOrigin> origins;

  // Whether gRPC reflection is served. "auto" means on when every listener is local.
  bool ReflectionOn() const;
  // "sqlite", "memory" or "postgres". Logs use this name, because the URL of `session_store` may hold a password.
  // Empty when `session_store` is none of these.
  std::string_view StoreKind() const;
  // The device numbers of --cuda_device. REQUIRES: this came from ParseConfig, which checks that each is a number.
  std::vector<int> CudaDevices() const;
  // True if some caller can use shared memory: the option is not off, and where it admits Unix sockets only, there is a
  // Unix listener.
  bool SharedMemoryOn() const;
};

// Reads each option from `args` (in the form that ReadCommandLine takes), else from `env` (NORMD_MAX_SESSIONS for
// --max_sessions), else from the file that --config names, else takes its default. Returns INVALID_ARGUMENT for the
// first mistake, naming option, value and limit, and for a mistake in the file its line. Changes nothing.
absl::StatusOr<Config> ParseConfig(absl::Span<const std::string> args, const std::map<std::string, std::string>& env);

// An environment variable that looks like an option but is not one.
struct UnknownVariable {
  std::string name;     // NORMD_MAX_SESSION
  std::string nearest;  // NORMD_MAX_SESSIONS; empty: no option's name is near
};

// Returns the variables whose names begin with NORMD_ and that nothing reads, because a misspelled one would silently
// do nothing. They are no error, because other programs set such names, too. The variables of normctl and of a
// Kubernetes service called normd are left out.
std::vector<UnknownVariable> UnknownVariables(const std::map<std::string, std::string>& env);

}  // namespace normd

#endif  // NORMD_SERVER_OPTIONS_CONFIG_H_
