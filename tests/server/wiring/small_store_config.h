// Options of a session store with room for a test's sessions; where it is kept is left open.
#ifndef NORMD_TESTS_SERVER_WIRING_SMALL_STORE_CONFIG_H_
#define NORMD_TESTS_SERVER_WIRING_SMALL_STORE_CONFIG_H_

#include "absl/time/time.h"
#include "server/options/config.h"

namespace normd {

inline Config SmallStoreConfig() {
  Config config;
  config.durability = "process";
  config.session_idle = absl::Minutes(1);
  config.max_resident_bytes = config.max_parameter_bytes = 1 << 20;
  config.max_total_bytes = 1 << 30;
  config.max_sessions = config.max_clients_per_session = 1000;
  config.replay_window = 16;
  return config;
}

}  // namespace normd

#endif  // NORMD_TESTS_SERVER_WIRING_SMALL_STORE_CONFIG_H_
