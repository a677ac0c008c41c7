#include "tests/support/raw_tls.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>

namespace normd {
namespace {

void UseCertificate(SSL* ssl, const TestCertificate& pair) {
  BIO* const certificate_reader = BIO_new_mem_buf(pair.certificate.data(), static_cast<int>(pair.certificate.size()));
  X509* const certificate = PEM_read_bio_X509(certificate_reader, nullptr, nullptr, nullptr);
  BIO_free(certificate_reader);
  BIO* const key_reader = BIO_new_mem_buf(pair.key.data(), static_cast<int>(pair.key.size()));
  EVP_PKEY* const key = PEM_read_bio_PrivateKey(key_reader, nullptr, nullptr, nullptr);
  BIO_free(key_reader);
  SSL_use_certificate(ssl, certificate);
  SSL_use_PrivateKey(ssl, key);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

}  // namespace

RawTls::RawTls(const std::string& target, const Options& options)
    : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL
  const size_t colon = target.rfind(':');
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(target.c_str() + colon + 1)));
  inet_pton(AF_INET, target.substr(0, colon).c_str(), &address.sin_addr);
  const timeval limit = {.tv_sec = 10, .tv_usec = 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  if (connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return;
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  if (options.old_versions) {
    SSL_CTX_set_security_level(context, 0);
    SSL_CTX_set_min_proto_version(context, TLS1_VERSION);
  }
  if (options.max_version != 0) SSL_CTX_set_max_proto_version(context, options.max_version);
  if (!options.ciphers.empty()) SSL_CTX_set_cipher_list(context, options.ciphers.c_str());
  ssl_ = SSL_new(context);
  SSL_CTX_free(context);
  SSL_set_fd(ssl_, fd_);
  if (!options.certificate.certificate.empty()) UseCertificate(ssl_, options.certificate);
  if (options.protocol.empty()) return;
  const std::string list = std::string(1, static_cast<char>(options.protocol.size())) + options.protocol;
  SSL_set_alpn_protos(ssl_, reinterpret_cast<const unsigned char*>(list.data()), static_cast<unsigned>(list.size()));
}

RawTls::~RawTls() {
  SSL_free(ssl_);
  close(fd_);
}

bool RawTls::Handshake() {
  ERR_clear_error();
  return ssl_ != nullptr && SSL_connect(ssl_) == 1;
}

std::string RawTls::ServerSerial() const {
  const std::unique_ptr<X509, void (*)(X509*)> certificate(SSL_get1_peer_certificate(ssl_), X509_free);
  uint64_t serial = 0;
  ASN1_INTEGER_get_uint64(&serial, X509_get0_serialNumber(certificate.get()));
  return std::to_string(serial);
}

bool RawTls::Send(std::string_view bytes) {
  ERR_clear_error();
  return SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())) == static_cast<int>(bytes.size());
}

std::string RawTls::Receive(size_t size) {
  std::string bytes(size, '\0');
  ERR_clear_error();
  const int got = SSL_read(ssl_, bytes.data(), static_cast<int>(size));
  bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return bytes;
}

bool RawTls::EndedByServer() const { return (SSL_get_shutdown(ssl_) & SSL_RECEIVED_SHUTDOWN) != 0; }

bool RawTls::UpdateKeys() {
  ERR_clear_error();
  return SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) == 1 && SSL_do_handshake(ssl_) == 1;
}

std::string RawTls::Renegotiate() {
  ERR_clear_error();
  if (SSL_renegotiate(ssl_) == 1 && SSL_do_handshake(ssl_) == 1) return "";
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  return reason == nullptr ? "the connection has ended" : reason;
}

}  // namespace normd
