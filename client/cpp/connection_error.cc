#include "client/cpp/connection_error.h"

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/status.h"

namespace normd::client {
namespace {

// gRPC's own text, where the message has become a sentence.
constexpr absl::string_view kGrpcTextUrl = "normd/grpc-text";

std::string GrpcText(const absl::Status& status) {
  const auto kept = status.GetPayload(kGrpcTextUrl);
  return kept.has_value() ? std::string(*kept) : std::string(status.message());
}

// The last part of gRPC's "failed to connect to all addresses; last error: UNKNOWN: ...: Connection refused", where the
// operating system speaks.
std::string LastCause(absl::string_view message) {
  const size_t colon = message.rfind(": ");
  std::string cause(colon == absl::string_view::npos ? message : message.substr(colon + 2));
  if (!cause.empty()) cause[0] = absl::ascii_tolower(static_cast<unsigned char>(cause[0]));
  for (const absl::string_view call : {"recvmsg:", "sendmsg:"}) {
    if (absl::StartsWith(cause, call)) return absl::AsciiStrToLower(cause.substr(call.size()));
  }
  return cause;
}

// What stands behind `mark` in `message`; empty without it.
absl::string_view Behind(absl::string_view message, absl::string_view mark) {
  const size_t at = message.find(mark);
  return at == absl::string_view::npos ? "" : absl::StripAsciiWhitespace(message.substr(at + mark.size()));
}

bool IsUnreachable(absl::string_view message) {
  for (const absl::string_view start : {"failed to connect to all addresses", "DNS resolution failed",
                                        "connections to all backends failing", "empty address list"}) {
    if (absl::StartsWith(message, start)) return true;
  }
  return false;
}

bool IsClosed(absl::string_view cause) {
  for (const absl::string_view word : {"socket closed", "connection reset", "broken pipe", "transport closed",
                                       "endpoint read failed", "goaway received", "handshake", "connection closed"}) {
    if (absl::StrContains(absl::AsciiStrToLower(cause), word)) return true;
  }
  return false;
}

// What is to be done about a connection that was not made.
std::string WayOut(const ConnectionFinding& finding, const Callee& callee) {
  if (callee.proxy.has_value()) return absl::StrCat(":", ProxyText(*callee.proxy, callee.target));
  if (std::string text = SocketAccessText(finding.cause); !text.empty()) return text;
  if (!IsClosed(finding.cause)) return "; is it running there? start it, or name the server that Connect is to call";
  if (!callee.tls) {
    return "; if it speaks TLS, set security.tls or security.ca_file; it may also be at its limit of connections";
  }
  if (absl::StrContains(finding.cause, "certificate")) {
    return "; its certificate must come from security.ca_file, or from the system's roots, and be for its name";
  }
  return "; if it speaks no TLS, leave security's TLS options out; it may also be at its limit of connections";
}

std::string TextOf(const ConnectionFinding& finding, const Callee& callee) {
  switch (finding.trouble) {
    case ConnectionTrouble::kUnreachable:
      return absl::StrCat("cannot reach normd at ", callee.target, " (", finding.cause, ")", WayOut(finding, callee));
    case ConnectionTrouble::kClosed:
      return absl::StrCat(callee.target, " closed the connection before it answered (", finding.cause,
                          "); it may have been ended or restarted: call again");
    default:
      return TroubleText(finding, callee.target);
  }
}

// True if gRPC gave a call up whose server had said nothing of its own.
bool IsLate(const absl::Status& status) {
  return absl::IsDeadlineExceeded(status) && !GetErrorInfo(status).has_value() &&
         absl::EqualsIgnoreCase(status.message(), "Deadline Exceeded");
}

std::string LateText(const Callee& callee) {
  return absl::StrCat(callee.target, " did not answer before the deadline",
                      callee.proxy.has_value() ? absl::StrCat(":", ProxyText(*callee.proxy, callee.target))
                                               : "; ClientOptions::deadline allows more");
}

}  // namespace

Callee MakeCallee(const std::string& target, const SecurityOptions& security) {
  return {target, UsesTls(security), wire::HttpProxyOf(target)};
}

std::string SocketAccessText(absl::string_view cause) {
  if (!absl::StrContains(absl::AsciiStrToLower(cause), "permission denied")) return "";
  return "; call it as the user that it runs as, or have it let others in (--unix_socket_mode, --unix_socket_group)";
}

std::string ProxyText(const wire::HttpProxy& proxy, absl::string_view target) {
  return absl::StrCat(" ", proxy.variable, " sends calls to ", target, " through ", proxy.address,
                      "; unset it, or add ", proxy.host, " to no_proxy");
}

ConnectionFinding FindTrouble(const absl::Status& status) {
  // normd's own errors have details and a request id.
  if (status.ok() || GetErrorInfo(status).has_value() || !GetRequestId(status).empty()) return {};
  const std::string text = GrpcText(status);
  if (absl::StrContains(text, "http1.x server")) return {ConnectionTrouble::kHttp1, ""};
  if (const absl::string_view http = Behind(text, "Received http2 header with status: "); !http.empty()) {
    return {ConnectionTrouble::kNotGrpc, absl::StrCat("HTTP status ", http)};
  }
  if (absl::StrContains(text, "content-type")) return {ConnectionTrouble::kNotGrpc, text};
  if (absl::IsUnimplemented(status)) return {ConnectionTrouble::kOtherServer, text};
  if (!absl::IsUnavailable(status)) return {};
  if (const absl::string_view told = Behind(text, "Debug Text: "); !told.empty()) {
    return {ConnectionTrouble::kToldToGo, std::string(told)};
  }
  if (IsUnreachable(text)) return {ConnectionTrouble::kUnreachable, LastCause(text)};
  if (IsClosed(text)) return {ConnectionTrouble::kClosed, LastCause(text)};
  return {};
}

std::string TroubleText(const ConnectionFinding& finding, absl::string_view target) {
  switch (finding.trouble) {
    case ConnectionTrouble::kToldToGo:
      return absl::StrCat(target, " ended the connection: ", finding.cause);
    case ConnectionTrouble::kHttp1:
      return absl::StrCat(
          target, " answers HTTP/1: that is the admin port, or another program's; calls go to the gRPC port (8001 by ",
          "default)");
    case ConnectionTrouble::kNotGrpc:
      return absl::StrCat(target, " answers HTTP/2, but no gRPC (", finding.cause, "): is it another server, or a ",
                          "proxy that does not reach normd? normd's gRPC port is 8001 by default");
    case ConnectionTrouble::kOtherServer:
      return absl::StrCat(target, " is another gRPC server, which does not know normd's methods",
                          finding.cause.empty() ? "" : absl::StrCat(" (", finding.cause, ")"),
                          "; name the port of normd, 8001 by default");
    default:
      return "";
  }
}

absl::Status ExplainConnection(const absl::Status& status, const Callee& callee) {
  const std::string text = IsLate(status) ? LateText(callee) : TextOf(FindTrouble(status), callee);
  if (text.empty()) return status;
  absl::Status explained(status.code(), text);
  explained.SetPayload(kGrpcTextUrl, absl::Cord(GrpcText(status)));
  return explained;
}

}  // namespace normd::client
