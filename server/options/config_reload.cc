#include "server/options/config_reload.h"

#include "server/options/config_file.h"
#include "server/security/source_file.h"

namespace normd {

absl::StatusOr<Config> ReadConfigAgain(const std::string& path, const std::function<absl::StatusOr<Config>()>& read,
                                       const Settling& settling) {
  if (path.empty()) return read();
  ContentMemory memory;
  absl::StatusOr<Config> config = FileChangingError("--config", path);
  memory.See(ConfigFileKey(path), settling.now());
  const bool settled = LookUntilSettled(settling, [&] {
    // A reading between two looks that agree has the content that both looks saw.
    config = read();
    return memory.See(ConfigFileKey(path), settling.now());
  });
  return settled ? config : FileChangingError("--config", path);
}

}  // namespace normd
