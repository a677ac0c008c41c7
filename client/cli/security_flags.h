// The flags and environment variables that say how a server is called: TLS, certificates, a token. What the command
// line asks for is done or refused. The environment is for every command of a shell: its TLS is for TCP alone and does
// not count for a Unix socket, and its token is sent wherever a token may be. Plain functions.
#ifndef NORMD_CLIENT_CLI_SECURITY_FLAGS_H_
#define NORMD_CLIENT_CLI_SECURITY_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/args.h"
#include "client/cpp/security.h"

namespace normd::client {

// --tls, --ca, --certificate, --key, --server-name and --token-file. No flag takes a token, because everybody on the
// machine can read the command lines of its processes.
std::vector<FlagSpec> SecurityFlags();

// True if the flags or the environment ask for TLS, so that a server is called by TCP unless another target is named.
bool AsksForTls(const ParsedArgs& args);

// The options for calls to `target`: from the flags, else from NORMD_TLS, NORMD_CA, NORMD_CERTIFICATE, NORMD_KEY,
// NORMD_SERVER_NAME, NORMD_TOKEN_FILE and NORMD_TOKEN. UsageError for a NORMD_TLS that is neither true nor false.
absl::StatusOr<SecurityOptions> ReadSecurity(const ParsedArgs& args, const std::string& target);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_SECURITY_FLAGS_H_
