#include "client/cli/tls_probe.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace normd::client {
namespace {

constexpr int kPatienceSeconds = 2;  // of each step of the handshake

struct Free {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* connection) const { SSL_free(connection); }
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

struct HostPort {
  std::string host, port;
};

// An empty host for what is not host:port.
HostPort Split(absl::string_view target) {
  for (const absl::string_view scheme : {"dns:///", "dns:", "ipv4:", "ipv6:"}) {
    if (absl::ConsumePrefix(&target, scheme)) break;
  }
  const size_t colon = target.rfind(':');
  if (colon == absl::string_view::npos) return {std::string(target), "443"};
  absl::string_view host = target.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  return {std::string(host), std::string(target.substr(colon + 1))};
}

// A TCP connection whose reads and writes are bounded in time; -1 if there is none.
int Connect(const HostPort& to) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(to.host.c_str(), to.port.c_str(), &hints, &found) != 0) return -1;
  const Owned<addrinfo> addresses(found);
  const timeval limit = {.tv_sec = kPatienceSeconds, .tv_usec = 0};
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    const int fd = socket(address->ai_family, address->ai_socktype | SOCK_CLOEXEC, address->ai_protocol);
    if (fd < 0) continue;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));  // bounds connect(), too
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (connect(fd, address->ai_addr, address->ai_addrlen) == 0) return fd;
    close(fd);
  }
  return -1;
}

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

// Keeps SIGPIPE from ending the process: OpenSSL writes to sockets without asking for an error instead.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    const timespec now = {};
    sigtimedwait(&pipe_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_{}, before_{};
};

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

  // How the server answers. An alert of TLS is an answer of TLS.
  enum class Answer { kTls, kOther, kNone };
  Answer Run() {
    ERR_clear_error();
    if (SSL_connect(connection_.get()) == 1) return Answer::kTls;
    error_ = ERR_peek_error();
    if (IsAlert()) return Answer::kTls;
    const bool got_bytes =
        ERR_GET_LIB(error_) == ERR_LIB_SSL && ERR_GET_REASON(error_) != SSL_R_UNEXPECTED_EOF_WHILE_READING;
    return got_bytes ? Answer::kOther : Answer::kNone;
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
    const char* const reason =
        IsAlert() ? SSL_alert_desc_string_long(ERR_GET_REASON(error_) - SSL_AD_REASON_OFFSET) : "";
    return {TlsProblem::kCertificateRefused, reason};
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

TlsFinding Judge(Handshake& handshake, bool uses_tls) {
  using Answer = Handshake::Answer;
  const Answer answer = handshake.Run();
  if (!uses_tls) return {answer == Answer::kTls ? TlsProblem::kServerSpeaksTls : TlsProblem::kNone, ""};
  if (answer != Answer::kTls)
    return {answer == Answer::kOther ? TlsProblem::kServerSpeaksNoTls : TlsProblem::kNone, ""};
  TlsFinding server = handshake.JudgeServer();
  return server.problem == TlsProblem::kNone ? handshake.JudgeClient() : std::move(server);
}

}  // namespace

TlsFinding ProbeTls(const std::string& target, const SecurityOptions& security) {
  if (IsUnixSocket(target)) return {};
  const HostPort to = Split(target);
  const int fd = Connect(to);
  if (fd < 0) return {};
  TlsFinding finding;
  {
    const NoSigpipe no_sigpipe;
    Handshake handshake(fd, to, security);
    finding = Judge(handshake, UsesTls(security));
  }
  close(fd);
  return finding;
}

}  // namespace normd::client
