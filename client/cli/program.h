// What normctl and normload share around a command: where output goes, how a server is found, how errors are shown, and
// the exit codes 0 (ok), 1 (an error, the server's or a file's) and 2 (called the wrong way).
#ifndef NORMD_CLIENT_CLI_PROGRAM_H_
#define NORMD_CLIENT_CLI_PROGRAM_H_

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cli/args.h"
#include "client/cpp/client.h"

namespace normd::client {

inline constexpr absl::string_view kDefaultServer = "127.0.0.1:8001";

enum ExitCode { kExitOk = 0, kExitError = 1, kExitUsage = 2 };

// Borrowed for one command.
struct Terminal {
  std::ostream& out;
  std::ostream& err;
  int width;        // of out
  bool err_is_tty;  // people are watching: progress is shown
};

// The terminal of this process.
Terminal ProcessTerminal();

// --version, for the program as a whole.
inline constexpr FlagSpec kVersionFlag = {"version", 'V', "", "print the version"};

// --server, --deadline and --json, which every command that talks to a server has.
std::vector<FlagSpec> ServerFlags();

// --server, else $NORMD_SERVER, else 127.0.0.1:8001.
std::string ServerTarget(const ParsedArgs& args);
absl::StatusOr<std::unique_ptr<Client>> ConnectTo(const ParsedArgs& args);

// An error whose command has printed its own report, JSON included: exit code 1, and the message on `err` alone.
absl::Status ReportedError(absl::string_view message);
absl::Status Reported(absl::Status status);

// {"error": {"code", "message", ...}}: what Finish prints for --json.
nlohmann::json ErrorJson(const absl::Status& status);

// The exit code for `status`. Errors go to `err` with field, reason and limit, and, for --json, as an object to `out`.
int Finish(const absl::Status& status, absl::string_view program, bool json, const Terminal& terminal);

// A whole command: parses `arguments`, answers --help and --version, runs, and reports as Finish does.
int RunCommand(absl::string_view program, const CommandSpec& spec, absl::Span<const std::string> arguments,
               const Terminal& terminal, absl::FunctionRef<absl::Status(const ParsedArgs&)> run);

// Indented, bytes that are no UTF-8 replaced, a line break at the end.
std::string JsonText(const nlohmann::json& json);

std::string ClientVersion();

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_PROGRAM_H_
