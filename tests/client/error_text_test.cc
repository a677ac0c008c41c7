// What people read when a command fails: the server's sentence in the words of the command, and gRPC's own errors.
#include "client/cli/error_text.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <tuple>

#include "client/cli/program.h"
#include "client/cpp/connection_error.h"
#include "client/cpp/status.h"
#include "google/rpc/error_details.pb.h"
#include "nlohmann/json.hpp"

namespace normd::client {
namespace {

// A status as the server sends it.
absl::Status ServerError(const std::string& message, const std::string& field, absl::StatusCode code) {
  google::rpc::ErrorInfo info;
  info.set_domain("normd");
  info.set_reason("SOME_REASON");
  (*info.mutable_metadata())["field"] = field;
  (*info.mutable_metadata())["value"] = "-1";
  (*info.mutable_metadata())["limit"] = "at least 0";
  google::rpc::Status proto;
  proto.set_code(static_cast<int>(code));
  proto.set_message(message);
  proto.add_details()->PackFrom(info);
  return ToStatus(proto);
}

ErrorContext Context() {
  return {"127.0.0.1:9",
          absl::Seconds(30),
          {{"eps", '\0', "E", ""},
           {"layout", '\0', "L", ""},
           {"step-sequence", '\0', "N", ""},
           {"residual", '\0', "F", ""},
           {"shape", '\0', "AxB", ""},
           {"dtype", '\0', "T", ""},
           {"weight", '\0', "F", ""},
           {"channels", '\0', "C", ""},
           {"id", '\0', "ID", ""},
           {"label", '\0', "K=V", ""}}};
}

std::string TextOf(const std::string& message, const std::string& field) {
  return ErrorText(ServerError(message, field, absl::StatusCode::kInvalidArgument), Context());
}

TEST(ErrorText, NamesTheFlagBesideTheField) {
  EXPECT_EQ(TextOf("spec.layer_norm.eps is -1; it must be finite and at least 0", "spec.layer_norm.eps"),
            "spec.layer_norm.eps (--eps) is -1; it must be finite and at least 0");
  EXPECT_EQ(TextOf("items[3].spec.layer_norm.eps is -1", "items[3].spec.layer_norm.eps"),
            "items[3].spec.layer_norm.eps (--eps) is -1");
  EXPECT_EQ(TextOf("step.sequence is 0; it must be at least 1", "step.sequence"),
            "step.sequence (--step-sequence) is 0; it must be at least 1");
  EXPECT_EQ(TextOf("residual.tensor has shape [2]; it must have [3]", "residual.tensor"),
            "residual.tensor (--residual) has shape [2]; it must have [3]");
  EXPECT_EQ(TextOf("x has rank 0; the rank must be between 1 and 8", "x.shape"),
            "x (--shape) has rank 0; the rank must be between 1 and 8");
}

TEST(ErrorText, KnowsTheFlagsThatAreNotNamedAsTheirFields) {
  for (const auto& [field, flag] :
       std::vector<std::pair<std::string, std::string>>{{"session.num_channels", "channels"},
                                                        {"session_id", "id"},
                                                        {"session.labels[a.b]", "label"},
                                                        {"session.default_dtype", "dtype"},
                                                        {"x.dtype", "dtype"}}) {
    EXPECT_EQ(TextOf(field + " is bad", field), field + " (--" + flag + ") is bad");
  }
}

TEST(ErrorText, TagsDtypeAndShapeOfATensorOtherThanXWithTheFlagOfTheTensor) {
  EXPECT_EQ(TextOf("parameters.weight.dtype is f8", "parameters.weight.dtype"),
            "parameters.weight.dtype (--weight) is f8");
  EXPECT_EQ(TextOf("residual.tensor.dtype is f8", "residual.tensor.dtype"), "residual.tensor.dtype (--residual) is f8");
  EXPECT_EQ(TextOf("mask.shape is [2]", "mask.shape"), "mask.shape is [2]");
}

TEST(ErrorText, ControlCharactersReachNoTerminal) {
  EXPECT_EQ(Printable("a\x1b[2Jb\tc\x7f\xc3\xa9"), "a?[2Jb?c?\xc3\xa9");
  const absl::Status status = ServerError("x \x1b]0;title\x07", "\x1b[31m", absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorDetails(status).find('\x1b'), std::string::npos);
  std::ostringstream out, err;
  Finish(status, "normctl", false, {out, err, 100, false});
  EXPECT_EQ(err.str(), "normctl: x ?]0;title?\n");
}

TEST(ErrorText, LeavesFieldsThatNoFlagSetsAlone) {
  EXPECT_EQ(TextOf("mask is given, but layer_norm takes no mask; leave it out", "mask"),
            "mask is given, but layer_norm takes no mask; leave it out");
  EXPECT_EQ(TextOf("something else went wrong", "spec.layer_norm.eps"), "something else went wrong");
  EXPECT_EQ(TextOf("", "spec.layer_norm.eps"), "");
}

TEST(ErrorText, SaysEnumValuesAsFlagsTakeThem) {
  EXPECT_EQ(TextOf("spec.batch_norm.layout is missing; give LAYOUT_CHANNELS_FIRST or LAYOUT_CHANNELS_LAST",
                   "spec.batch_norm.layout"),
            "spec.batch_norm.layout (--layout) is missing; give channels-first or channels-last");
  EXPECT_EQ(TextOf("device is DEVICE_CUDA, but MY_DEVICE_CUDA and DEVICE_CUDA_2 stay", "device"),
            "device is cuda, but MY_DEVICE_CUDA and DEVICE_CUDA_2 stay");
}

TEST(ErrorText, SaysWhatToDoWhereNoServerIs) {
  const absl::Status tcp = absl::UnavailableError(
      "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:9: Failed to connect to remote host: "
      "Connection refused");
  EXPECT_EQ(ErrorText(tcp, Context()),
            "cannot reach normd at 127.0.0.1:9 (connection refused); is it running there? start it, or name the server "
            "with -s HOST:PORT or NORMD_SERVER");
  const absl::Status closed = absl::UnavailableError(
      "failed to connect to all addresses; last error: UNKNOWN: unix:/n.sock: Failed to connect to remote host: "
      "Permission denied");
  EXPECT_EQ(
      ErrorText(closed, Context()),
      "cannot reach normd at 127.0.0.1:9 (permission denied); call it as the user that it runs as, or have it let "
      "others in (--unix_socket_mode, --unix_socket_group)");
  const absl::Status dns = absl::UnavailableError("DNS resolution failed for nohost:1: C-ares: Domain name not found");
  EXPECT_EQ(ErrorText(dns, Context()).find("cannot reach normd at 127.0.0.1:9 (domain name not found); is it"), 0u);
}

TEST(ErrorText, KnowsTheAdminPort) {
  const absl::Status http = absl::UnavailableError(
      "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:127.0.0.1:9: Trying to connect an http1.x "
      "server");
  EXPECT_EQ(ErrorText(http, Context()),
            "127.0.0.1:9 answers HTTP/1: that is the admin port, or another program's; calls go to the gRPC port (8001 "
            "by default)");
}

TEST(ErrorText, SaysTheSameOfAStatusThatTheLibraryHasExplained) {
  const absl::Status raw = absl::UnavailableError(
      "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:9: Failed to connect to remote host: "
      "Connection refused");
  const absl::Status explained = ExplainConnection(raw, MakeCallee("127.0.0.1:9", {}));
  EXPECT_NE(explained.message(), raw.message());
  EXPECT_EQ(ErrorText(explained, Context()), ErrorText(raw, Context()));
  const absl::Status late = ExplainConnection(absl::DeadlineExceededError("Deadline Exceeded"), MakeCallee("a:1", {}));
  EXPECT_EQ(late.message(), "a:1 did not answer before the deadline; ClientOptions::deadline allows more");
  EXPECT_EQ(ErrorText(late, Context()), "127.0.0.1:9 did not answer within 30s; --deadline allows more");
  EXPECT_EQ(ExplainConnection(absl::UnavailableError("draining"), MakeCallee("a:1", {})).message(), "draining");
}

TEST(ErrorText, KnowsOtherServers) {
  for (const auto& [code, message, text] : std::vector<std::tuple<absl::StatusCode, std::string, std::string>>{
           {absl::StatusCode::kUnimplemented, "Method not found!",
            "127.0.0.1:9 is another gRPC server, which does not know normd's methods (Method not found!); name the "
            "port of "
            "normd, 8001 by default"},
           {absl::StatusCode::kUnimplemented, "",
            "127.0.0.1:9 is another gRPC server, which does not know normd's methods; name the port of normd, 8001 by "
            "default"},
           {absl::StatusCode::kUnavailable, "Received http2 header with status: 502",
            "127.0.0.1:9 answers HTTP/2, but no gRPC (HTTP status 502): is it another server, or a proxy that does not "
            "reach "
            "normd? normd's gRPC port is 8001 by default"},
           {absl::StatusCode::kUnavailable, "GOAWAY received; Error code: 11; Debug Text: 2 connections are open",
            "127.0.0.1:9 ended the connection: 2 connections are open"},
           {absl::StatusCode::kUnavailable, "recvmsg:Connection reset by peer",
            "127.0.0.1:9 closed the connection before it answered (connection reset by peer); it may have been ended "
            "or "
            "restarted: try again"}}) {
    EXPECT_EQ(ErrorText(absl::Status(code, message), Context()), text);
  }
  const absl::Status own = ServerError("method x is not served here", "method", absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ErrorText(own, Context()), "method x is not served here") << "a normd of another version";
}

TEST(ToText, IsOneLineWithoutThePayload) {
  const absl::Status status = ServerError("eps is -1\n\x1b[2J", "eps", absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ToText(status), "INVALID_ARGUMENT: eps is -1??[2J");
  EXPECT_EQ(ToText(absl::InternalError("")), "INTERNAL");
  EXPECT_EQ(ToText(absl::OkStatus()), "OK");
}

TEST(ErrorText, SaysHowACallerBecomesKnown) {
  const absl::Status unknown =
      ServerError("credentials are missing; give a token", "credentials", absl::StatusCode::kUnauthenticated);
  ErrorContext context = Context();
  EXPECT_EQ(
      ErrorText(unknown, context),
      "credentials are missing; give a token (--token-file FILE, NORMD_TOKEN, or --certificate FILE and --key FILE)");
  context.security.token = "s3cret";
  EXPECT_EQ(ErrorText(unknown, context), "credentials are missing; give a token (the token was that of NORMD_TOKEN)");
  context.security.token = "";
  context.security.token_file = "/run/token";
  EXPECT_EQ(ErrorText(unknown, context), "credentials are missing; give a token (the token was that in /run/token)");
  EXPECT_EQ(ErrorText(absl::PermissionDeniedError("no"), context),
            "no; have its operator allow it, or call with another token or certificate");
}

TEST(ErrorText, AsksWhyThereIsNoConnectionOnlyWhereThatMayBeTls) {
  int probes = 0;
  ErrorContext context = Context();
  context.probe = [&probes] {
    ++probes;
    return TlsFinding{TlsProblem::kServerSpeaksTls, ""};
  };
  EXPECT_EQ(
      ErrorText(absl::UnavailableError("failed to connect to all addresses; last error: x: Socket closed"), context),
      "127.0.0.1:9 speaks TLS and was called in plain text; add --tls, or --ca FILE with the root certificate of "
      "the server's");
  EXPECT_EQ(probes, 1);
  EXPECT_EQ(ErrorText(absl::UnavailableError("draining"), context), "draining");
  EXPECT_EQ(ErrorText(ServerError("full", "connections", absl::StatusCode::kUnavailable), context), "full");
  EXPECT_EQ(probes, 1);
  EXPECT_EQ(ErrorText(absl::DeadlineExceededError("Deadline Exceeded"), context).find("127.0.0.1:9 speaks TLS"), 0u);
  EXPECT_EQ(probes, 2) << "a server of TLS may wait for more, too";
}

TEST(ErrorText, SaysHowLongItWaited) {
  EXPECT_EQ(ErrorText(absl::DeadlineExceededError("Deadline Exceeded"), Context()),
            "127.0.0.1:9 did not answer within 30s; --deadline allows more");
  EXPECT_EQ(ErrorText(ServerError("call was late", "call", absl::StatusCode::kDeadlineExceeded), Context()),
            "call was late");
}

TEST(ErrorText, KeepsOtherMessagesAndNamesTheCodeOfNone) {
  EXPECT_EQ(ErrorText(absl::NotFoundError("in.npy: cannot open"), Context()), "in.npy: cannot open");
  EXPECT_EQ(
      ErrorText(absl::UnavailableError("Socket closed"), Context()),
      "127.0.0.1:9 closed the connection before it answered (socket closed); it may have been ended or restarted: try "
      "again");
  EXPECT_EQ(ErrorText(absl::InternalError(""), Context()), "INTERNAL");
}

// ---- What a command prints

struct Ran {
  int code;
  std::string out, err;
};

// Runs a command that prints a word and fails, on a terminal that shows colour or not.
Ran RunFailing(const std::vector<std::string>& arguments, bool color = false) {
  std::ostringstream out, err;
  const Terminal terminal{out, err, 100, /*err_is_tty=*/color, /*out_is_tty=*/color, color, color};
  const CommandSpec spec = {"layer-norm", "", 0, 0, "", "", Join({{"eps", '\0', "E", ""}}, ServerFlags())};
  const int code = RunCommand("normctl", spec, arguments, terminal, [](const ParsedArgs&, const Terminal& colored) {
    colored.out << Painted(Paint::kBold, "word", colored.color) << "\n";
    return ServerError("spec.layer_norm.eps is -1", "spec.layer_norm.eps", absl::StatusCode::kInvalidArgument);
  });
  return {code, out.str(), err.str()};
}

TEST(RunCommand, PrintsAnErrorInOneLine) {
  const Ran ran = RunFailing({});
  EXPECT_EQ(ran.code, kExitError);
  EXPECT_EQ(ran.out, "word\n");
  EXPECT_EQ(ran.err, "normctl layer-norm: spec.layer_norm.eps (--eps) is -1\n");
}

TEST(RunCommand, SaysThatStandardOutputCannotBeWritten) {
  std::ostringstream out, err;
  out.setstate(std::ios::badbit);
  EXPECT_EQ(Finish(absl::OkStatus(), "normctl methods", false, {out, err, 100, false}), kExitError);
  EXPECT_EQ(err.str(), "normctl methods: standard output: cannot write\n");
}

TEST(RunCommand, HeadingsOfTheHelpAreBoldInColour) {
  EXPECT_EQ(WithBoldHeadings("Usage: a:\n\nTensors:\n  --x:\n\n  y:\nz:", true),
            "Usage: a:\n\n\x1b[1mTensors:\x1b[0m\n  --x:\n\n  y:\nz:");
  EXPECT_EQ(WithBoldHeadings("a\n\nTensors:\n", false), "a\n\nTensors:\n");
  EXPECT_NE(RunFailing({"--help"}, true).out.find("\x1b[1mFlags:\x1b[0m\n"), std::string::npos);
  EXPECT_EQ(RunFailing({"--help", "--color=never"}, true).out.find('\x1b'), std::string::npos);
}

TEST(RunCommand, PrintsTheDetailsWhenAskedFor) {
  const std::string details =
      "  code: INVALID_ARGUMENT\n  field: spec.layer_norm.eps\n  reason: SOME_REASON\n  value: -1\n  limit: at least "
      "0\n";
  for (const char* flag : {"-v", "--verbose"}) {
    EXPECT_EQ(RunFailing({flag}).err, "normctl layer-norm: spec.layer_norm.eps (--eps) is -1\n" + details);
  }
}

TEST(RunCommand, PrintsTheSameSentenceAndTheDetailsAsJson) {
  const Ran ran = RunFailing({"--json"});
  const nlohmann::json error = nlohmann::json::parse(ran.out.substr(ran.out.find('{')))["error"];
  EXPECT_EQ(error, nlohmann::json({{"code", "INVALID_ARGUMENT"},
                                   {"message", "spec.layer_norm.eps (--eps) is -1"},
                                   {"field", "spec.layer_norm.eps"},
                                   {"reason", "SOME_REASON"},
                                   {"value", "-1"},
                                   {"limit", "at least 0"}}));
}

TEST(RunCommand, ColoursWhereTheTerminalDoesUnlessTold) {
  const std::string red = "\x1b[1;31mnormctl layer-norm:\x1b[0m ", bold = "\x1b[1mword\x1b[0m\n";
  EXPECT_EQ(RunFailing({}, true).err.find(red), 0u);
  EXPECT_EQ(RunFailing({}, true).out, bold);
  EXPECT_EQ(RunFailing({"--color=auto"}, true).out, bold);
  EXPECT_EQ(RunFailing({"--color=always"}).err.find(red), 0u);
  EXPECT_EQ(RunFailing({"--color=always"}).out, bold);
  EXPECT_EQ(RunFailing({"--color=never"}, true).err, RunFailing({}).err);
  EXPECT_EQ(RunFailing({"--color=never"}, true).out, "word\n");
  const Ran wrong = RunFailing({"--color=sometimes"});
  EXPECT_EQ(wrong.code, kExitUsage);
  EXPECT_EQ(wrong.err, "normctl layer-norm: --color is sometimes; it must be auto, always or never\nTry --help.\n");
}

}  // namespace
}  // namespace normd::client
