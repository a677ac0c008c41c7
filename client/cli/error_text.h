// What a person reads when a command fails: one sentence in the words of the tool, made from the status that a server,
// gRPC or the command itself returned. The server speaks of fields and of the contract's enum values; the sentence also
// names the flag that sets the field, and the value as the flag takes it. Pure functions, but for the probe and the
// proxy, which is the environment's.
#ifndef NORMD_CLIENT_CLI_ERROR_TEXT_H_
#define NORMD_CLIENT_CLI_ERROR_TEXT_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cli/args.h"
#include "client/cli/tls_probe.h"
#include "client/cpp/security.h"

namespace normd::client {

// What the sentence depends on besides the status.
struct ErrorContext {
  std::string server;             // the target that was called
  absl::Duration deadline;        // of each call; zero if no server was called
  std::vector<FlagSpec> flags;    // of the command
  SecurityOptions security = {};  // with which the server was called
  // Finds out why no connection was made: ProbeConnection of the two above. Called for such errors alone; null: nobody
  // asks.
  std::function<TlsFinding()> probe = nullptr;
};

// The sentence, in one line: "spec.layer_norm.eps (--eps) is -1; it must be finite and at least 0".
std::string ErrorText(const absl::Status& status, const ErrorContext& context);

// `text` with '?' in place of control characters, which a terminal would obey. What servers and files say goes through
// it.
std::string Printable(absl::string_view text);

// The lines of --verbose: the code and, for the server's errors, field, reason, value, limit and the like.
std::string ErrorDetails(const absl::Status& status);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_ERROR_TEXT_H_
