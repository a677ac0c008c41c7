#include "server/net/tls_contexts.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "server/net/tls_socket.h"
#include "server/security/openssl_objects.h"

namespace normd::net {
namespace {

constexpr char kTls12Ciphers[] =
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:"
    "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305";
constexpr char kTls13Ciphers[] = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
// Several records are taken from the kernel at once.
constexpr size_t kReadAheadBytes = 64 << 10;

// Chooses HTTP/2 among the protocols that the client offers; RFC 7301, 3.1 has them behind their lengths.
int ChooseHttp2(SSL*, const unsigned char** chosen, unsigned char* chosen_size, const unsigned char* offered,
                unsigned int offered_size, void*) {
  std::string_view left(reinterpret_cast<const char*>(offered), offered_size);
  while (!left.empty()) {
    const auto size = static_cast<unsigned char>(left.front());
    left.remove_prefix(1);
    if (left.substr(0, size) == "h2") {
      *chosen = reinterpret_cast<const unsigned char*>(left.data());
      *chosen_size = size;
      return SSL_TLSEXT_ERR_OK;
    }
    left.remove_prefix(std::min<size_t>(size, left.size()));
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

bool UseCertificate(SSL_CTX* context, const CertificateTexts& texts) {
  const BioPtr reader = ReaderOf(texts.certificate);
  const X509Ptr own(PEM_read_bio_X509_AUX(reader.get(), nullptr, nullptr, nullptr));
  if (own == nullptr || SSL_CTX_use_certificate(context, own.get()) != 1) return false;
  while (X509Ptr next{PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr)}) {
    if (SSL_CTX_add1_chain_cert(context, next.get()) != 1) return false;
  }
  const KeyPtr key(PEM_read_bio_PrivateKey(ReaderOf(texts.key).get(), nullptr, nullptr, nullptr));
  return key != nullptr && SSL_CTX_use_PrivateKey(context, key.get()) == 1 && SSL_CTX_check_private_key(context) == 1;
}

bool AskClients(SSL_CTX* context, const std::string& client_ca, bool require) {
  const BioPtr reader = ReaderOf(client_ca);
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  int count = 0;
  while (const X509Ptr ca{PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr)}) {
    if (X509_STORE_add_cert(store, ca.get()) != 1 || SSL_CTX_add_client_CA(context, ca.get()) != 1) return false;
    ++count;
  }
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | (require ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0), nullptr);
  return count > 0;
}

std::shared_ptr<SSL_CTX> MakeContext(const Certificates& certificates, bool require_client_certificate) {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (context == nullptr) return nullptr;
  SSL_CTX* const raw = context.get();
  const std::string& client_ca = certificates.texts.client_ca;
  const bool made = SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION) == 1 &&
                    SSL_CTX_set_cipher_list(raw, kTls12Ciphers) == 1 &&
                    SSL_CTX_set_ciphersuites(raw, kTls13Ciphers) == 1 && UseCertificate(raw, certificates.texts) &&
                    (client_ca.empty() || AskClients(raw, client_ca, require_client_certificate));
  ERR_clear_error();  // the end of the certificates leaves an error behind
  if (!made) return nullptr;
  // Nothing of a session is kept for a later one: a client that comes back shows its certificate again.
  SSL_CTX_set_options(
      raw, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_num_tickets(raw, 0);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  // SSL_read would go on until it has data, for as long as records without any come.
  SSL_CTX_clear_mode(raw, SSL_MODE_AUTO_RETRY);
  SSL_CTX_set_msg_callback(raw, TlsSocket::OnMessage);
  SSL_CTX_set_read_ahead(raw, 1);
  SSL_CTX_set_default_read_buffer_len(raw, kReadAheadBytes);
  SSL_CTX_set_alpn_select_cb(raw, ChooseHttp2, nullptr);
  return context;
}

}  // namespace

std::shared_ptr<SSL_CTX> TlsContexts::current() {
  std::shared_ptr<const Certificates> certificates = certificates_->current();
  MutexLock lock(mu_);
  if (certificates != made_of_) {
    context_ = MakeContext(*certificates, require_client_certificate_);
    made_of_ = std::move(certificates);
  }
  return context_;
}

}  // namespace normd::net
