// The files about security that options name: where the server and --check_config find them.
// In the path: beside it, at the start. Pure functions but for CheckSecurityFiles, which reads files.
#ifndef NORMD_SERVER_WIRING_SECURITY_FILES_H_
#define NORMD_SERVER_WIRING_SECURITY_FILES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/options/config.h"
#include "server/security/access_control.h"
#include "server/security/certificates.h"

namespace normd {

AccessOptions AccessOptionsOf(const Config& config);
CertificatePaths CertificatePathsOf(const Config& config);

// The PEM text of --trace_ca; empty without that option.
absl::StatusOr<std::string> ReadTraceCa(const Config& config);

// Reads every file of these that an option names, as the server would at its start, and returns the first one's error.
// Keeps nothing, and makes no file.
absl::Status CheckSecurityFiles(const Config& config, Clock* clock);

}  // namespace normd

#endif  // NORMD_SERVER_WIRING_SECURITY_FILES_H_
