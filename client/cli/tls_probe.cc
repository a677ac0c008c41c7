#include "client/cli/tls_probe.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "client/cli/plain_probe.h"
#include "client/cli/probe_socket.h"

namespace normd::client {
namespace {

struct Free {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* connection) const { SSL_free(connection); }
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

// The names that a certificate is for: "DNS localhost, IP 127.0.0.1".
std::string NamesOf(X509* certificate) {
  const Owned<GENERAL_NAMES> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> out;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME& name = *sk_GENERAL_NAME_value(names.get(), i);
    if (name.type == GEN_DNS) {
      out.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name.d.dNSName)),
                       static_cast<size_t>(ASN1_STRING_length(name.d.dNSName)));
    } else if (name.type == GEN_IPADD) {
      char text[INET6_ADDRSTRLEN] = "";
      const int family = ASN1_STRING_length(name.d.iPAddress) == 4 ? AF_INET : AF_INET6;
      inet_ntop(family, ASN1_STRING_get0_data(name.d.iPAddress), text, sizeof(text));
      out.emplace_back(text);
    }
  }
  return absl::StrJoin(out, ", ");
}

// One handshake. The server's certificate is judged, but a bad one does not end the handshake, so that what else is
// wrong shows, too.
class Handshake {
 public:
  Handshake(int fd, const HostPort& to, const SecurityOptions& security)
      : context_(SSL_CTX_new(TLS_client_method())), connection_(SSL_new(context_.get())) {
    if (security.ca_file.empty() ||
        SSL_CTX_load_verify_locations(context_.get(), security.ca_file.c_str(), nullptr) != 1) {
      SSL_CTX_set_default_verify_paths(context_.get());
    }
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_NONE, nullptr);
    SSL* const ssl = connection_.get();
    SSL_set_fd(ssl, fd);
    SSL_set_app_data(ssl, this);
    SSL_set_cert_cb(ssl, &NoteRequest, this);
    const unsigned char http2[] = {2, 'h', '2'};
    SSL_set_alpn_protos(ssl, http2, sizeof(http2));
    if (!security.certificate_file.empty()) {
      SSL_use_certificate_chain_file(ssl, security.certificate_file.c_str());
      SSL_use_PrivateKey_file(ssl, security.key_file.c_str(), SSL_FILETYPE_PEM);
    }
    Expect(security.server_name.empty() ? to.host : security.server_name);
  }
  ~Handshake() { ERR_clear_error(); }
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;

  // How the server answers. An alert may come from a server of plain text, too, which cannot read a hello.
  enum class Answer { kTls, kAlert, kNone };
  Answer Run() {
    ERR_clear_error();
    if (SSL_connect(connection_.get()) == 1) return Answer::kTls;
    error_ = ERR_peek_error();
    if (SSL_get_current_cipher(connection_.get()) != nullptr) return Answer::kTls;  // it said hello
    return IsAlert() ? Answer::kAlert : Answer::kNone;
  }

  std::string AlertText() const {
    return IsAlert() ? SSL_alert_desc_string_long(ERR_GET_REASON(error_) - SSL_AD_REASON_OFFSET) : "";
  }

  // What the server's certificate is refused for.
  TlsFinding JudgeServer() const {
    const long result = SSL_get_verify_result(connection_.get());
    const std::string reason = X509_verify_cert_error_string(result);
    switch (result) {
      case X509_V_OK:
        return {};
      case X509_V_ERR_HOSTNAME_MISMATCH:
      case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return {TlsProblem::kWrongName, NamesOf(SSL_get0_peer_certificate(connection_.get()))};
      case X509_V_ERR_CERT_HAS_EXPIRED:
      case X509_V_ERR_CERT_NOT_YET_VALID:
        return {TlsProblem::kExpired, reason};
      case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
      case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
      case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
      case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
      case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
      case X509_V_ERR_CERT_SIGNATURE_FAILURE:
        return {TlsProblem::kUnknownAuthority, reason};
      default:
        return {TlsProblem::kOtherCertificate, reason};
    }
  }

  // What the server refuses the client's certificate for. With TLS 1.3 that comes after the handshake.
  TlsFinding JudgeClient() {
    char byte = 0;
    const bool is_open = error_ == 0 && SSL_peek(connection_.get(), &byte, 1) == 1;
    if (is_open || !asked_) return {};
    if (error_ == 0) error_ = ERR_peek_error();
    if (SSL_get_certificate(connection_.get()) == nullptr) return {TlsProblem::kCertificateMissing, ""};
    return {TlsProblem::kCertificateRefused, AlertText()};
  }

 private:
  static int NoteRequest(SSL*, void* handshake) {
    static_cast<Handshake*>(handshake)->asked_ = true;
    return 1;
  }

  void Expect(const std::string& name) {
    X509_VERIFY_PARAM* const expected = SSL_get0_param(connection_.get());
    if (X509_VERIFY_PARAM_set1_ip_asc(expected, name.c_str()) == 1) return;
    SSL_set1_host(connection_.get(), name.c_str());
    SSL_set_tlsext_host_name(connection_.get(), name.c_str());
  }

  bool IsAlert() const {
    return ERR_GET_LIB(error_) == ERR_LIB_SSL && ERR_GET_REASON(error_) > SSL_AD_REASON_OFFSET &&
           ERR_GET_REASON(error_) <= SSL_AD_REASON_OFFSET + 255;
  }

  const Owned<SSL_CTX> context_;
  const Owned<SSL> connection_;
  bool asked_ = false;       // the server asked for a client certificate
  unsigned long error_ = 0;  // the first one of OpenSSL's
};

// Why no TLS was spoken: what answers in plain text instead.
TlsFinding JudgePlain(const PlainAnswer& answer, bool uses_tls) {
  switch (answer.kind) {
    case PlainKind::kHttp2:
      if (!answer.text.empty()) return {TlsProblem::kToldToGo, answer.text};
      return {uses_tls ? TlsProblem::kServerSpeaksNoTls : TlsProblem::kNone, ""};
    case PlainKind::kHttp1:
      return {TlsProblem::kServerSpeaksHttp1, ""};
    case PlainKind::kOther:
      return {TlsProblem::kOtherProgram, answer.text};
    case PlainKind::kClosed:
      return {TlsProblem::kClosesConnections, ""};
    case PlainKind::kSilent:
      return {TlsProblem::kSilent, ""};
    case PlainKind::kNobody:
      break;
  }
  return {};
}

// Calls by TLS. nullopt where no TLS is spoken, and what the server's alert said in `alert`.
std::optional<TlsFinding> ProbeByTls(const std::string& target, const SecurityOptions& security, std::string* alert) {
  const ProbeSocket socket(target);
  if (socket.fd() < 0) return std::nullopt;
  const NoSigpipe no_sigpipe;
  Handshake handshake(socket.fd(), SplitTarget(target), security);
  const Handshake::Answer answer = handshake.Run();
  *alert = handshake.AlertText();
  if (answer != Handshake::Answer::kTls) return std::nullopt;
  TlsFinding server = handshake.JudgeServer();
  return server.problem == TlsProblem::kNone ? handshake.JudgeClient() : std::move(server);
}

TlsFinding ProbeInPlainText(const std::string& target, const SecurityOptions& security) {
  const PlainAnswer answer = AskInPlainText(target);
  // A server of TLS answers an alert, or closes the connection, or waits for more.
  const bool may_be_tls =
      answer.kind == PlainKind::kOther || answer.kind == PlainKind::kClosed || answer.kind == PlainKind::kSilent;
  std::string alert;
  if (may_be_tls && !IsUnixSocket(target) && (ProbeByTls(target, security, &alert).has_value() || !alert.empty())) {
    return {TlsProblem::kServerSpeaksTls, ""};
  }
  return JudgePlain(answer, false);
}

}  // namespace

TlsFinding ProbeConnection(const std::string& target, const SecurityOptions& security) {
  if (!UsesTls(security)) return ProbeInPlainText(target, security);
  std::string alert;
  if (std::optional<TlsFinding> finding = ProbeByTls(target, security, &alert); finding.has_value()) return *finding;
  // A server of plain text may answer a hello of TLS by an alert, or by nothing but the end of the connection.
  TlsFinding plain = JudgePlain(AskInPlainText(target), true);
  const bool is_plain =
      plain.problem == TlsProblem::kServerSpeaksNoTls || plain.problem == TlsProblem::kServerSpeaksHttp1;
  return alert.empty() || is_plain ? std::move(plain) : TlsFinding{TlsProblem::kHelloRefused, alert};
}

}  // namespace normd::client
