#include "client/cli/program.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/cli/error_text.h"
#include "client/cpp/local_server.h"

namespace normd::client {
namespace {

constexpr absl::string_view kReportedUrl = "normd.reported";

// The value of an environment variable. (getenv is not safe beside threads that change the environment.)
std::optional<std::string> Environment(absl::string_view name) {
  for (char** variable = environ; *variable != nullptr; ++variable) {
    absl::string_view text = *variable;
    if (absl::ConsumePrefix(&text, name) && absl::ConsumePrefix(&text, "=")) return std::string(text);
  }
  return std::nullopt;
}

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

// What the text of an error needs to know of the command. REQUIRES: the arguments of the flags may be wrong.
ErrorContext ContextOf(const CommandSpec& spec, const ParsedArgs& args) {
  const absl::StatusOr<std::optional<absl::Duration>> deadline = args.Duration("deadline");
  return {ServerTarget(args), deadline.ok() ? deadline->value_or(ClientOptions().deadline) : absl::ZeroDuration(),
          spec.flags};
}

int Report(const absl::Status& status, absl::string_view program, bool json, bool verbose, const ErrorContext& context,
           const Terminal& terminal) {
  terminal.out.flush();
  if (status.ok()) return terminal.out.good() ? kExitOk : kExitError;
  const std::string text = ErrorText(status, context);
  if (json && !status.GetPayload(kReportedUrl).has_value()) {
    terminal.out << JsonText(ErrorJson(status, text)) << std::flush;
  }
  terminal.err << Painted(Paint::kError, absl::StrCat(program, ":"), terminal.err_color) << " " << text << "\n";
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

std::string Painted(Paint paint, absl::string_view text, bool color) {
  if (!color) return std::string(text);
  return absl::StrCat(paint == Paint::kError ? "\x1b[1;31m" : "\x1b[1m", text, "\x1b[0m");
}

std::vector<FlagSpec> ServerFlags() {
  return {{"server", 's', "TARGET",
           "host:port or unix:/path; default: $NORMD_SERVER, your server's Unix socket, 127.0.0.1:8001"},
          {"deadline", '\0', "TIME", "for each call, retries included (default 30s)"},
          {"json", '\0', "", "print JSON for programs"},
          {"verbose", 'v', "", "print the code, field, reason, value and limit of an error, too"},
          {"color", '\0', "WHEN", "auto (default: on a terminal, without $NO_COLOR), always or never"}};
}

std::string ServerTarget(const ParsedArgs& args) {
  const std::string server = args.GetOr("server", Environment("NORMD_SERVER").value_or(""));
  if (!server.empty()) return server;
  return FindUnixSocket(Environment("XDG_RUNTIME_DIR").value_or("")).value_or(std::string(kDefaultServer));
}

absl::StatusOr<std::unique_ptr<Client>> ConnectTo(const ParsedArgs& args, ClientOptions options) {
  const absl::StatusOr<std::optional<absl::Duration>> deadline = args.Duration("deadline");
  if (!deadline.ok()) return deadline.status();
  if (deadline->has_value()) options.deadline = **deadline;
  if (options.deadline == absl::ZeroDuration()) return BadValueError("deadline", *args.Get("deadline"), "above 0");
  return Client::Connect(ServerTarget(args), options);
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
  return {{"error", error}};
}

nlohmann::json ErrorJson(const absl::Status& status) { return ErrorJson(status, status.message()); }

int Finish(const absl::Status& status, absl::string_view program, bool json, const Terminal& terminal) {
  return Report(status, program, json, false, {}, terminal);
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
    terminal.out << HelpText(program, spec);
    return Finish(absl::OkStatus(), name, false, terminal);
  }
  if (args->Has(kVersionFlag.name)) {
    terminal.out << program << " " << ClientVersion() << "\n";
    return Finish(absl::OkStatus(), name, false, terminal);
  }
  return Report(run(*args, *colored), name, args->Has("json"), args->Has("verbose"), ContextOf(spec, *args), *colored);
}

std::string JsonText(const nlohmann::json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string ClientVersion() { return NORMD_VERSION; }

}  // namespace normd::client
