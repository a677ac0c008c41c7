#include "client/cli/error_text.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/cli/spec_flags.h"
#include "client/cpp/connection_error.h"
#include "client/cpp/status.h"
#include "google/protobuf/descriptor.h"
#include "normd/v1/normalizer.pb.h"

namespace normd::client {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::FileDescriptor;

// ---- Errors of gRPC, which never reached normd ----

// What to do about a connection that was not made, for the reason that was found; empty if none was.
std::string TlsText(const TlsFinding& finding, const ErrorContext& context) {
  const std::string& server = context.server;
  const std::string ca = context.security.ca_file.empty() ? "the system's root certificates"
                                                          : absl::StrCat("--ca ", context.security.ca_file);
  const std::string reason = finding.detail.empty() ? "" : absl::StrCat(" (", finding.detail, ")");
  switch (finding.problem) {
    case TlsProblem::kNone:
      return "";
    case TlsProblem::kServerSpeaksTls:
      return absl::StrCat(server, " speaks TLS and was called in plain text; add --tls, or --ca FILE with the root ",
                          "certificate of the server's");
    case TlsProblem::kServerSpeaksNoTls:
      return absl::StrCat(server, " speaks no TLS and was called by it; leave --tls, --ca and the like out ",
                          "(NORMD_TLS=false), or start it with --tls_certificate");
    case TlsProblem::kUnknownAuthority:
      return absl::StrCat("the certificate of ", server, " does not come from ", ca, reason,
                          "; name the file with its root certificate with --ca FILE or NORMD_CA");
    case TlsProblem::kWrongName:
      return absl::StrCat("the certificate of ", server, " is for other names", reason,
                          "; call it by one of them, or give --server-name NAME");
    case TlsProblem::kExpired:
      return absl::StrCat("the certificate of ", server, " is out of date", reason,
                          "; the server needs a new one, unless the clock of this machine is wrong");
    case TlsProblem::kOtherCertificate:
      return absl::StrCat("the certificate of ", server, " is refused", reason, "; the server needs another one");
    case TlsProblem::kCertificateMissing:
      return absl::StrCat(server, " asks for a client certificate; give one with --certificate FILE and --key FILE");
    case TlsProblem::kCertificateRefused:
      return absl::StrCat(server, " refuses the client certificate ", context.security.certificate_file, reason,
                          "; give one that comes from the server's --tls_client_ca and is in date");
    case TlsProblem::kHelloRefused:
      return absl::StrCat(server, " refuses to speak TLS", reason,
                          "; is it normd that listens there? its gRPC port is ", "8001 by default");
    case TlsProblem::kServerSpeaksHttp1:
      return TroubleText({ConnectionTrouble::kHttp1, ""}, server);
    case TlsProblem::kOtherProgram:
      return absl::StrCat(
          server, " answers ", finding.detail.empty() ? "unreadable bytes" : absl::StrCat("\"", finding.detail, "\""),
          ", which is no HTTP/2: another program listens there; ", "name the port of normd, 8001 by default");
    case TlsProblem::kToldToGo:
      return TroubleText({ConnectionTrouble::kToldToGo, finding.detail}, server);
    case TlsProblem::kClosesConnections:
      return absl::StrCat(server, " closes every connection without a word; it may be at its limit of them ",
                          "(--max_connections), or forward to a server that is not there");
    case TlsProblem::kSilent:
      return absl::StrCat(server, " takes connections and says nothing; is it normd that listens there, and does it ",
                          "run? its gRPC port is 8001 by default");
  }
  return "";
}

// The error of a call that no server answered, in the words of the tool; nothing where gRPC's own are as good.
std::optional<std::string> TransportText(const absl::Status& status, const ErrorContext& context) {
  const ConnectionFinding finding = FindTrouble(status);
  const std::optional<wire::HttpProxy> proxy = MakeCallee(context.server, context.security).proxy;
  const std::string through = proxy.has_value() ? absl::StrCat(":", ProxyText(*proxy, context.server)) : "";
  const bool is_late = absl::IsDeadlineExceeded(status) && context.deadline > absl::ZeroDuration();
  const bool may_be_asked =
      is_late || finding.trouble == ConnectionTrouble::kUnreachable || finding.trouble == ConnectionTrouble::kClosed;
  // Behind a proxy the probe would ask another than was asked.
  const bool asks = may_be_asked && !proxy.has_value() && context.probe != nullptr;
  const TlsFinding found = asks ? context.probe() : TlsFinding{};
  if (is_late && found.problem == TlsProblem::kSilent) {
    return absl::StrCat(context.server, " did not answer within ", absl::FormatDuration(context.deadline),
                        ", and takes connections without a word; is it normd that listens there, and does it run?");
  }
  if (std::string text = TlsText(found, context); !text.empty()) return text;
  if (is_late) {
    return absl::StrCat(context.server, " did not answer within ", absl::FormatDuration(context.deadline),
                        through.empty() ? "; --deadline allows more" : through);
  }
  switch (finding.trouble) {
    case ConnectionTrouble::kNone:
      return std::nullopt;
    case ConnectionTrouble::kUnreachable:
      if (const std::string access = SocketAccessText(finding.cause); !access.empty()) {
        return absl::StrCat("cannot reach normd at ", context.server, " (", finding.cause, ")", access);
      }
      return absl::StrCat("cannot reach normd at ", context.server, " (", finding.cause, ")",
                          through.empty() ? "; is it running there? start it, or name the server with -s HOST:PORT or "
                                            "NORMD_SERVER"
                                          : through);
    case ConnectionTrouble::kClosed:
      return absl::StrCat(context.server, " closed the connection before it answered (", finding.cause,
                          "); it may have been ended or restarted: try again");
    default:
      return TroubleText(finding, context.server);
  }
}

// ---- Errors of the server ----

// The enum values of the contract as flags take them: LAYOUT_CHANNELS_FIRST is "channels-first".
std::map<std::string, std::string> EnumWords() {
  std::map<std::string, std::string> words;
  const FileDescriptor& top = *v1::NormalizeRequest::descriptor()->file();
  std::vector<const FileDescriptor*> files = {&top};
  for (int i = 0; i < top.dependency_count(); ++i) files.push_back(top.dependency(i));
  for (const FileDescriptor* file : files) {
    if (file->package() != top.package()) continue;
    for (int i = 0; i < file->enum_type_count(); ++i) {
      const EnumDescriptor& type = *file->enum_type(i);
      for (int v = 0; v < type.value_count(); ++v) {
        words[type.value(v)->name()] = absl::StrReplaceAll(EnumText(type, type.value(v)->number()), {{"_", "-"}});
      }
    }
  }
  return words;
}

bool IsNameChar(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// `message` with the words of flags in place of enum values.
std::string WithEnumWords(absl::string_view message) {
  const std::map<std::string, std::string> words = EnumWords();
  std::string out;
  for (size_t at = 0; at < message.size();) {
    const auto* const end = std::find_if(message.begin() + at, message.end(), [](char c) { return !IsNameChar(c); });
    const auto length = static_cast<size_t>(end - (message.begin() + at));
    const std::string name(message.substr(at, std::max<size_t>(length, 1)));
    const auto word = words.find(name);
    out += word == words.end() ? name : word->second;
    at += name.size();
  }
  return out;
}

bool HasFlag(const ErrorContext& context, absl::string_view name) {
  return std::any_of(context.flags.begin(), context.flags.end(),
                     [&](const FlagSpec& flag) { return flag.name == name; });
}

// Fields whose flags have names of their own.
struct RenamedField {
  absl::string_view field, flag;
};
constexpr RenamedField kRenamedFields[] = {
    {"num-channels", "channels"}, {"session-id", "id"}, {"labels", "label"}, {"default-dtype", "dtype"}};

// The command's flag for the words of a field, empty if it has none.
std::string FlagNamed(const std::string& words, const ErrorContext& context) {
  if (HasFlag(context, words)) return words;
  for (const RenamedField& renamed : kRenamedFields) {
    if (renamed.field == words && HasFlag(context, renamed.flag)) return std::string(renamed.flag);
  }
  return "";
}

// --dtype and --shape are about x alone, while every tensor has the two fields.
bool IsOfAnotherTensor(const std::vector<std::string>& parts, size_t at) {
  return at > 0 && (parts[at] == "dtype" || parts[at] == "shape") && parts[at - 1] != "x";
}

// The flag that sets the field, found by name from the end of the path: --eps for spec.layer_norm.eps, --step-sequence
// for step.sequence, --residual for residual.tensor. Empty if the command has none.
std::string FlagOf(absl::string_view field, const ErrorContext& context) {
  std::vector<std::string> parts = absl::StrSplit(absl::StrReplaceAll(field, {{"_", "-"}}), '.');
  for (std::string& part : parts) part = part.substr(0, part.find('['));
  for (size_t last = parts.size(); last-- > 0;) {
    if (IsOfAnotherTensor(parts, last)) continue;
    if (std::string flag = FlagNamed(parts[last], context); !flag.empty()) return flag;
    if (last == 0) break;
    const std::string joined = absl::StrCat(parts[last - 1], "-", parts[last]);
    if (std::string flag = FlagNamed(joined, context); !flag.empty()) return flag;
  }
  return "";
}

// `message` with the flag beside the field, with which the server's messages begin. The message may name the tensor
// ("x has rank 0") where the field is a part of it (x.shape).
std::string WithFlag(std::string message, absl::string_view field, const ErrorContext& context) {
  const std::string flag = FlagOf(field, context);
  const size_t end = std::min(message.find(' '), message.size());
  if (flag.empty() || end == 0 || !absl::StartsWith(field, absl::string_view(message).substr(0, end))) return message;
  message.insert(end, absl::StrCat(" (--", flag, ")"));
  return message;
}

// What a caller can do who is not known to the server, or may not do what was asked; else empty.
std::string Advice(const absl::Status& status, const ErrorContext& context) {
  const bool has_token = !context.security.token.empty() || !context.security.token_file.empty();
  if (absl::IsUnauthenticated(status)) {
    if (!has_token) return " (--token-file FILE, NORMD_TOKEN, or --certificate FILE and --key FILE)";
    if (context.security.token_file.empty()) return " (the token was that of NORMD_TOKEN)";
    return absl::StrCat(" (the token was that in ", context.security.token_file, ")");
  }
  if (!absl::IsPermissionDenied(status)) return "";
  return "; have its operator allow it, or call with another token or certificate";
}

std::string TextOf(const absl::Status& status, const ErrorContext& context) {
  const std::optional<ErrorInfo> info = GetErrorInfo(status);
  if (info.has_value()) return WithFlag(WithEnumWords(status.message()), info->field, context);
  if (std::optional<std::string> text = TransportText(status, context)) return *std::move(text);
  return status.message().empty() ? absl::StatusCodeToString(status.code()) : std::string(status.message());
}

}  // namespace

std::string ErrorText(const absl::Status& status, const ErrorContext& context) {
  return absl::StrCat(TextOf(status, context), Advice(status, context));
}

std::string Printable(absl::string_view text) {
  std::string out(text);
  std::replace_if(
      out.begin(), out.end(), [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); }, '?');
  return out;
}

std::string ErrorDetails(const absl::Status& status) {
  std::string out = absl::StrCat("  code: ", absl::StatusCodeToString(status.code()), "\n");
  const auto line = [&](absl::string_view name, const std::string& value) {
    if (!value.empty()) absl::StrAppend(&out, "  ", name, ": ", Printable(value), "\n");
  };
  line("request id", GetRequestId(status));
  const std::optional<ErrorInfo> info = GetErrorInfo(status);
  if (!info.has_value()) return out;
  line("field", info->field);
  line("reason", info->reason);
  line("value", info->value);
  line("limit", info->limit);
  line("resource", info->resource);
  if (info->retry_delay.has_value()) line("retry after", absl::FormatDuration(*info->retry_delay));
  return out;
}

}  // namespace normd::client
