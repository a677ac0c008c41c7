// OpenSSL's settings for the server's side of TLS, made of the certificates that are current at each handshake.
// In the path: at the beginning of each encrypted connection. TLS 1.2 and 1.3, ciphers that authenticate what they
// encrypt, HTTP/2 by ALPN.
// Ownership: borrows the certificates, which must outlive it; connections share the contexts.
// Threads: safe from any thread.
#ifndef NORMD_SERVER_NET_TLS_CONTEXTS_H_
#define NORMD_SERVER_NET_TLS_CONTEXTS_H_

#include <openssl/ssl.h>

#include <memory>

#include "server/base/mutex.h"
#include "server/security/server_certificates.h"

namespace normd::net {

class TlsContexts {
 public:
  TlsContexts(const ServerCertificates* certificates, bool require_client_certificate)
      : certificates_(certificates), require_client_certificate_(require_client_certificate) {}

  // The context of the current certificates. Null if OpenSSL does not take them, which CheckCertificates prevents.
  std::shared_ptr<SSL_CTX> current();

 private:
  const ServerCertificates* const certificates_;
  const bool require_client_certificate_;
  Mutex mu_;
  std::shared_ptr<const Certificates> made_of_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<SSL_CTX> context_ ABSL_GUARDED_BY(mu_);
};

}  // namespace normd::net

#endif  // NORMD_SERVER_NET_TLS_CONTEXTS_H_
