// The options of `normd`: a struct of values, filled from one list of options that also makes --help and the README's
// table. In the path: main parses it once, the wiring reads it. Plain values.
#ifndef NORMD_SERVER_CONFIG_H_
#define NORMD_SERVER_CONFIG_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace normd {

// Every default is in option_list.cc: a Config is made by ParseConfig only.
struct Config {
  std::vector<std::string> listen;  // "127.0.0.1:8001", "[::1]:8001", "unix:/run/normd.sock"
  bool plaintext = false;
  std::string admin_listen;  // empty: no admin listener
  std::string port_file;     // empty: none
  int64_t max_message_bytes = 0;
  int64_t max_in_flight_bytes = 0;
  int64_t max_tensor_bytes = 0;
  std::string session_store;  // "sqlite", "memory", "postgres://..." or "postgresql://..."
  std::string data_dir;
  std::string durability;  // "memory", "process", "power"
  std::string backup;      // empty: serve; else a file: copy the store into it and exit
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
  std::string shm_prefix;                // of POSIX names; empty: none may be registered
  int64_t queues = 0;                    // 0: chosen from the cores
  int64_t threads = 0;                   // 0: all cores
  std::string max_isa;                   // "auto", or the name of a CPU target
  std::string cuda;                      // "auto", "off"
  std::vector<std::string> cuda_device;  // numbers, as CudaDevices reads them
  absl::Duration batch_delay;
  std::string reflection;  // "auto", "on", "off"
  int64_t max_concurrent_streams = 0;
  int64_t max_connections = 0;           // 0: what the limit of descriptors allows
  int64_t max_connections_per_peer = 0;  // 0: half of that
  absl::Duration setup_timeout;
  absl::Duration max_connection_age;  // 0: any
  absl::Duration message_timeout;
  int64_t min_message_rate = 0;  // bytes a second
  absl::Duration max_queue_age;
  absl::Duration drain_settle;
  absl::Duration drain_timeout;
  std::string log_level;   // "debug", "info", "warn", "error"
  std::string log_format;  // "text", "json"
  std::string help;        // empty: serve; else "text", "markdown", "metrics" or "errors": print and exit
  bool version = false;    // print and exit

  bool ReflectionOn() const;
  // "sqlite", "memory" or "postgres": a URL may hold a password and is not for logs.
  std::string_view StoreKind() const;
  // The GPUs of --cuda_device. REQUIRES: the configuration was parsed, so that each is a number.
  std::vector<int> CudaDevices() const;
  // Whether any caller can use shared memory: it is on, and listened for where it is for Unix sockets alone.
  bool SharedMemoryOn() const;
};

// The options that `args` name (as ReadCommandLine takes them), the others from the environment (NORMD_MAX_SESSIONS for
// --max_sessions), and the rest from the list of options. The first mistake is INVALID_ARGUMENT naming option, value
// and limit. Nothing outside is touched.
absl::StatusOr<Config> ParseConfig(absl::Span<const std::string> args, const std::map<std::string, std::string>& env);

// A variable of the environment that looks like an option and is none.
struct UnknownVariable {
  std::string name;     // NORMD_MAX_SESSION
  std::string nearest;  // NORMD_MAX_SESSIONS; empty: none is near
};

// Variables whose names begin with NORMD_ and that nobody reads: a misspelled one would otherwise do nothing in
// silence. They are no error, because others set such names, too: those of a Kubernetes service called normd and
// normctl's are left out here, those of tests are not known here.
std::vector<UnknownVariable> UnknownVariables(const std::map<std::string, std::string>& env);

// What --help prints.
std::string HelpText();
// The options as the README's Markdown table, what --help=markdown prints.
std::string HelpMarkdown();

}  // namespace normd

#endif  // NORMD_SERVER_CONFIG_H_
