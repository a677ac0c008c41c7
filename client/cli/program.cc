#include "client/cli/program.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/cli/environment.h"
#include "client/cli/security_flags.h"
#include "client/cli/tls_probe.h"
#include "client/cpp/local_server.h"
#include "client/cpp/target.h"

namespace normd::client {
namespace {

constexpr absl::string_view kReportedUrl = "normd.reported";

// The width of the terminal `fd` in columns; $COLUMNS or 120 if `fd` is not a terminal.
int TerminalWidth(int fd) {
  winsize size = {};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  int columns = 0;
  return absl::SimpleAtoi(Environment("COLUMNS").value_or(""), &columns) && columns > 0 ? columns : 120;
}

// Whether a terminal may show colour: https://no-color.org, and terminals that have none.
bool WantsColor() { return Environment("NO_COLOR").value_or("").empty() && Environment("TERM").value_or("") != "dumb"; }

// The terminal as --color wants it.
absl::StatusOr<Terminal> WithColor(const ParsedArgs& args, Terminal terminal) {
  const std::string color = args.GetOr("color", "auto");
  if (color == "always" || color == "never") {
    terminal.color = color == "always";
    terminal.err_color = terminal.color;
  } else if (color != "auto") {
    return BadValueError("color", color, "auto, always or never");
  }
  return terminal;
}

// Whether the reader of standard output has left: no error, as with `normctl methods | head`. The errno of the write
// that failed may be lost by now.
bool OutputReaderHasLeft() {
  pollfd output = {.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  return poll(&output, 1, 0) > 0 && (output.revents & (POLLERR | POLLHUP)) != 0;
}

void PrintError(absl::string_view program, absl::string_view text, const Terminal& terminal) {
  terminal.err << Painted(Paint::kError, absl::StrCat(program, ":"), terminal.err_color) << " " << Printable(text)
               << "\n";
}

// Reports an error in the words of the `context`, which is asked for only then.
int Report(const absl::Status& status, absl::string_view program, bool json, bool verbose,
           absl::FunctionRef<ErrorContext()> context, const Terminal& terminal) {
  terminal.out.flush();
  if (status.ok()) {
    if (terminal.out.good()) return kExitOk;
    if (!OutputReaderHasLeft()) PrintError(program, "standard output: cannot write", terminal);
    return kExitError;
  }
  if (status.message().empty() && status.GetPayload(kReportedUrl).has_value()) return kExitError;
  const std::string text = ErrorText(status, context());
  if (json && !status.GetPayload(kReportedUrl).has_value()) {
    terminal.out << JsonText(ErrorJson(status, text)) << std::flush;
  }
  PrintError(program, text, terminal);
  if (IsUsageError(status)) terminal.err << "Try --help.\n";
  if (verbose) terminal.err << ErrorDetails(status);
  return IsUsageError(status) ? kExitUsage : kExitError;
}

}  // namespace

Terminal ProcessTerminal() {
  const bool out_is_tty = isatty(STDOUT_FILENO) == 1, err_is_tty = isatty(STDERR_FILENO) == 1;
  return {std::cout,
          std::cerr,
          TerminalWidth(STDOUT_FILENO),
          err_is_tty,
          out_is_tty,
          out_is_tty && WantsColor(),
          err_is_tty && WantsColor()};
}

void SilenceGrpc() {
  constexpr int kKeepWhatIsSet = 0;
  setenv("GRPC_VERBOSITY", "NONE", kKeepWhatIsSet);  // NOLINT(concurrency-mt-unsafe): there is one thread
}

std::string Painted(Paint paint, absl::string_view text, bool color) {
  if (!color) return std::string(text);
  return absl::StrCat(paint == Paint::kError ? "\x1b[1;31m" : "\x1b[1m", text, "\x1b[0m");
}

std::string WithBoldHeadings(absl::string_view text, bool color) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (size_t i = 1; i < lines.size(); ++i) {
    const bool heading = lines[i - 1].empty() && absl::EndsWith(lines[i], ":") && !absl::StartsWith(lines[i], " ");
    if (heading) lines[i] = Painted(Paint::kBold, lines[i], color);
  }
  return absl::StrJoin(lines, "\n");
}

std::vector<FlagSpec> ServerFlags() {
  return Join({{"server", 's', "TARGET",
                "host:port or unix:/path; default: $NORMD_SERVER, your server's Unix socket, 127.0.0.1:8001"},
               {"deadline", '\0', "TIME", "for each call, retries included (default 30s)"},
               {"json", '\0', "", "print JSON for programs"},
               {"verbose", 'v', "", "print the code, field, reason, value and limit of an error, too"},
               {"color", '\0', "WHEN", "auto (default: on a terminal, without $NO_COLOR), always or never"}},
              SecurityFlags());
}

absl::StatusOr<std::string> ServerTarget(const ParsedArgs& args) {
  const std::string of_environment = Environment("NORMD_SERVER").value_or("");
  if (args.Has("server") || !of_environment.empty()) {
    absl::StatusOr<std::string> target =
        CompleteTarget(args.Has("server") ? "--server" : "NORMD_SERVER", args.GetOr("server", of_environment));
    if (!target.ok()) return UsageError(target.status().message());
    return target;
  }
  if (AsksForTls(args)) return std::string(kDefaultServer);
  return FindUnixSocket(Environment("XDG_RUNTIME_DIR").value_or("")).value_or(std::string(kDefaultServer));
}

absl::StatusOr<std::unique_ptr<Client>> ConnectTo(const ParsedArgs& args, ClientOptions options) {
  const absl::StatusOr<std::optional<absl::Duration>> deadline = args.Duration("deadline");
  if (!deadline.ok()) return deadline.status();
  if (deadline->has_value()) options.deadline = **deadline;
  if (options.deadline == absl::ZeroDuration()) return BadValueError("deadline", *args.Get("deadline"), "above 0");
  const absl::StatusOr<std::string> target = ServerTarget(args);
  if (!target.ok()) return target.status();
  absl::StatusOr<SecurityOptions> security = ReadSecurity(args, *target);
  if (!security.ok()) return security.status();
  options.security = *std::move(security);
  return Client::Connect(*target, std::move(options));
}

ErrorContext ContextOf(const CommandSpec& spec, const ParsedArgs& args) {
  const absl::StatusOr<std::optional<absl::Duration>> deadline = args.Duration("deadline");
  ErrorContext context;
  context.server = ServerTarget(args).value_or("");
  if (deadline.ok()) context.deadline = deadline->value_or(ClientOptions().deadline);
  context.flags = spec.flags;
  context.security = ReadSecurity(args, context.server).value_or(SecurityOptions());
  context.probe = [target = context.server, security = context.security] { return ProbeConnection(target, security); };
  return context;
}

void PrintWarnings(const std::vector<std::string>& warnings, const Terminal& terminal) {
  for (const std::string& warning : warnings) {
    terminal.err << Painted(Paint::kBold, "warning:", terminal.err_color) << " " << Printable(warning) << "\n";
  }
}

absl::Status ReportedError(absl::string_view message) { return Reported(absl::AbortedError(message)); }

absl::Status Reported(absl::Status status) {
  status.SetPayload(kReportedUrl, absl::Cord());
  return status;
}

nlohmann::json ErrorJson(const absl::Status& status, absl::string_view text) {
  nlohmann::json error = {{"code", absl::StatusCodeToString(status.code())}, {"message", std::string(text)}};
  if (const std::optional<ErrorInfo> info = GetErrorInfo(status)) {
    error.update({{"field", info->field}, {"reason", info->reason}, {"value", info->value}, {"limit", info->limit}});
  }
  if (const std::string id = GetRequestId(status); !id.empty()) error["request_id"] = id;
  return {{"error", error}};
}

int Finish(const absl::Status& status, absl::string_view program, bool json, const Terminal& terminal) {
  return Report(
      status, program, json, false, [] { return ErrorContext(); }, terminal);
}

int RunCommand(absl::string_view program, const CommandSpec& spec, absl::Span<const std::string> arguments,
               const Terminal& terminal,
               absl::FunctionRef<absl::Status(const ParsedArgs&, const Terminal& terminal)> run) {
  const std::string name = absl::StrCat(program, spec.name.empty() ? "" : " ", spec.name);
  const absl::StatusOr<ParsedArgs> args = ParseArgs(spec, arguments);
  if (!args.ok()) {
    const bool json = std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
    return Finish(args.status(), name, json, terminal);
  }
  const absl::StatusOr<Terminal> colored = WithColor(*args, terminal);
  if (!colored.ok()) return Finish(colored.status(), name, args->Has("json"), terminal);
  if (args->Has("help")) {
    terminal.out << WithBoldHeadings(HelpText(program, spec), colored->color);
    return Finish(absl::OkStatus(), name, false, terminal);
  }
  if (args->Has(kVersionFlag.name)) {
    terminal.out << program << " " << ClientVersion() << "\n";
    return Finish(absl::OkStatus(), name, false, terminal);
  }
  return Report(
      run(*args, *colored), name, args->Has("json"), args->Has("verbose"), [&] { return ContextOf(spec, *args); },
      *colored);
}

std::string JsonText(const nlohmann::json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string ClientVersion() { return NORMD_VERSION; }

}  // namespace normd::client
