#include "server/rpc/grpc/tls_credentials.h"

#include <grpc/grpc.h>

#include <utility>

namespace normd::rpc {

TlsCredentials::TlsCredentials(const ServerCertificates* certificates, bool require_client_certificate)
    : certificates_(certificates) {
  grpc_ssl_client_certificate_request_type request = GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
  if (certificates->asks_clients()) {
    request = require_client_certificate ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                         : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY;
  }
  credentials_ = grpc_ssl_server_credentials_create_with_options(
      grpc_ssl_server_credentials_create_options_using_config_fetcher(request, &Fetch, this));
}

TlsCredentials::~TlsCredentials() { grpc_server_credentials_release(credentials_); }

int TlsCredentials::AddPortToServer(const std::string& address, grpc_server* server) {
  return grpc_server_add_http2_port(server, address.c_str(), credentials_);
}

grpc_ssl_certificate_config_reload_status TlsCredentials::Fetch(void* self,
                                                                grpc_ssl_server_certificate_config** config) {
  auto* const credentials = static_cast<TlsCredentials*>(self);
  std::shared_ptr<const Certificates> current = credentials->certificates_->current();
  if (current == credentials->fetched_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  const CertificateTexts& texts = current->texts;
  const grpc_ssl_pem_key_cert_pair pair = {.private_key = texts.key.c_str(), .cert_chain = texts.certificate.c_str()};
  // gRPC 1.51 asserts that there is a CA, even where clients are not asked. There, the server's own certificate stands
  // in, against which nothing is verified.
  const std::string& client_ca = texts.client_ca.empty() ? texts.certificate : texts.client_ca;
  *config = grpc_ssl_server_certificate_config_create(client_ca.c_str(), &pair, 1);
  credentials->fetched_ = std::move(current);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

}  // namespace normd::rpc
