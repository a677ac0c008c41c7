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

void PrintDetails(const ErrorInfo& info, std::ostream& err) {
  const auto line = [&](absl::string_view name, const std::string& value) {
    if (!value.empty()) err << "  " << name << ": " << value << "\n";
  };
  line("field", info.field);
  line("reason", info.reason);
  line("value", info.value);
  line("limit", info.limit);
  line("resource", info.resource);
  if (info.retry_delay.has_value()) line("retry after", absl::FormatDuration(*info.retry_delay));
}

}  // namespace

Terminal ProcessTerminal() {
  return {std::cout, std::cerr, TerminalWidth(STDOUT_FILENO), isatty(STDERR_FILENO) == 1, isatty(STDOUT_FILENO) == 1};
}

std::vector<FlagSpec> ServerFlags() {
  return {{"server", 's', "TARGET",
           "host:port or unix:/path; default: $NORMD_SERVER, your server's Unix socket, 127.0.0.1:8001"},
          {"deadline", '\0', "TIME", "for each call, retries included (default 30s)"},
          {"json", '\0', "", "print JSON for programs"}};
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
  if (options.deadline == absl::ZeroDuration()) return UsageError("--deadline: must be positive");
  return Client::Connect(ServerTarget(args), options);
}

absl::Status ReportedError(absl::string_view message) { return Reported(absl::AbortedError(message)); }

absl::Status Reported(absl::Status status) {
  status.SetPayload(kReportedUrl, absl::Cord());
  return status;
}

nlohmann::json ErrorJson(const absl::Status& status) {
  nlohmann::json error = {{"code", absl::StatusCodeToString(status.code())},
                          {"message", std::string(status.message())}};
  if (const std::optional<ErrorInfo> info = GetErrorInfo(status)) {
    error.update({{"field", info->field}, {"reason", info->reason}, {"value", info->value}, {"limit", info->limit}});
  }
  return {{"error", error}};
}

int Finish(const absl::Status& status, absl::string_view program, bool json, const Terminal& terminal) {
  terminal.out.flush();
  if (status.ok()) return terminal.out.good() ? kExitOk : kExitError;
  if (json && !status.GetPayload(kReportedUrl).has_value()) terminal.out << JsonText(ErrorJson(status)) << std::flush;
  if (IsUsageError(status)) {
    terminal.err << program << ": " << status.message() << "\nTry --help.\n";
    return kExitUsage;
  }
  terminal.err << program << ": " << absl::StatusCodeToString(status.code()) << ": " << status.message() << "\n";
  if (const std::optional<ErrorInfo> info = GetErrorInfo(status)) PrintDetails(*info, terminal.err);
  return kExitError;
}

int RunCommand(absl::string_view program, const CommandSpec& spec, absl::Span<const std::string> arguments,
               const Terminal& terminal, absl::FunctionRef<absl::Status(const ParsedArgs&)> run) {
  const std::string name = absl::StrCat(program, spec.name.empty() ? "" : " ", spec.name);
  const absl::StatusOr<ParsedArgs> args = ParseArgs(spec, arguments);
  if (!args.ok()) {
    const bool json = std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
    return Finish(args.status(), name, json, terminal);
  }
  if (args->Has("help")) {
    terminal.out << HelpText(program, spec);
    return Finish(absl::OkStatus(), name, false, terminal);
  }
  if (args->Has(kVersionFlag.name)) {
    terminal.out << program << " " << ClientVersion() << "\n";
    return Finish(absl::OkStatus(), name, false, terminal);
  }
  return Finish(run(*args), name, args->Has("json"), terminal);
}

std::string JsonText(const nlohmann::json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string ClientVersion() { return NORMD_VERSION; }

}  // namespace normd::client
