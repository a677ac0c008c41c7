#include "tests/crash/postgres_control.h"

#include "absl/time/time.h"
#include "tests/crash/process.h"

namespace normd::crash {

absl::Status PostgresControl::CrashAndRestart() const {
  for (const char* const command : {"kill", "restart"}) {
    Process process({"/bin/bash", script, command, folder}, folder + "/control.log");
    if (process.Wait(absl::Seconds(90)) != 0) {
      return absl::InternalError("postgres.sh " + std::string(command) + " failed: see " + folder + "/control.log");
    }
  }
  return absl::OkStatus();
}

}  // namespace normd::crash
