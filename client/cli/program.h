// What normctl and normload share around a command: where output goes, how a server is found, how errors are shown, and
// the exit codes 0 (ok), 1 (an error of the server or of a file) and 2 (wrong usage).
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
#include "client/cli/error_text.h"
#include "client/cpp/client.h"

namespace normd::client {

inline constexpr absl::string_view kDefaultServer = "127.0.0.1:8001";

enum ExitCode { kExitOk = 0, kExitError = 1, kExitUsage = 2 };

// Where a command writes. Borrowed for one command.
struct Terminal {
  std::ostream& out;
  std::ostream& err;
  int width;                // of out, in columns
  bool err_is_tty;          // a person is watching, so progress is shown
  bool out_is_tty = false;  // out is read by a person, not by a program
  bool color = false;       // out shows colour
  bool err_color = false;   // err shows colour
};

// The terminal of this process. A terminal shows colour unless $NO_COLOR is set or $TERM is "dumb".
Terminal ProcessTerminal();

// Keeps gRPC's own log off stderr, where errors are said once and in the words of the program; $GRPC_VERBOSITY brings
// it back. Call it before there is a second thread.
void SilenceGrpc();

// How a word stands out: kError in bold red, kBold in bold.
enum class Paint { kError, kBold };
// `text` in colour, or as it is if `color` is false: Painted(Paint::kBold, "applied", terminal.color).
std::string Painted(Paint paint, absl::string_view text, bool color);
// `text` with its headings in bold: the lines that end with ':', are not indented and follow an empty line.
std::string WithBoldHeadings(absl::string_view text, bool color);

// --version, a flag of the program as a whole.
inline constexpr FlagSpec kVersionFlag = {"version", 'V', "", "print the version"};

// --server, --deadline, --json, --verbose and --color, and those of security_flags.h: every command that talks to a
// server has them.
std::vector<FlagSpec> ServerFlags();

// --server, else $NORMD_SERVER, else the Unix socket of a server of this user, else 127.0.0.1:8001. Without the Unix
// socket where TLS is asked for. A target without a port gets 8001; UsageError for what is none.
absl::StatusOr<std::string> ServerTarget(const ParsedArgs& args);
// `options` but for the deadline and the security, which are flags.
absl::StatusOr<std::unique_ptr<Client>> ConnectTo(const ParsedArgs& args, ClientOptions options = {});

// Marks an error whose command has already printed its own report, JSON included: exit code 1, and the message goes to
// `err` alone. An empty message is not printed.
absl::Status ReportedError(absl::string_view message);
absl::Status Reported(absl::Status status);

// Prints a line to `err` for each warning, --quiet or not: a warning says that a result may not be what was meant.
void PrintWarnings(const std::vector<std::string>& warnings, const Terminal& terminal);

// What the text of an error needs to know of the command. The values of the flags may be wrong.
ErrorContext ContextOf(const CommandSpec& spec, const ParsedArgs& args);

// {"error": {"code", "message", ...}}: the object that Finish prints for --json. The message is `text`.
nlohmann::json ErrorJson(const absl::Status& status, absl::string_view text);

// Reports `status` and returns its exit code. Errors go to `err` as one line and, for --json, to `out` as an object.
int Finish(const absl::Status& status, absl::string_view program, bool json, const Terminal& terminal);

// Runs a whole command: parses `arguments`, answers --help and --version, calls `run`, and reports as Finish does, in
// the words of the command's flags (error_text.h) and, with --verbose, in detail. `run` gets the terminal as --color
// wants it.
int RunCommand(absl::string_view program, const CommandSpec& spec, absl::Span<const std::string> arguments,
               const Terminal& terminal,
               absl::FunctionRef<absl::Status(const ParsedArgs&, const Terminal& terminal)> run);

// Indented JSON text that ends with a line break. Bytes that are not UTF-8 are replaced.
std::string JsonText(const nlohmann::json& json);

std::string ClientVersion();

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_PROGRAM_H_
