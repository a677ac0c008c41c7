// gRPC's side of TLS: credentials that ask ServerCertificates for the current certificates at each handshake. gRPC's
// own watcher of files (FileWatcherCertificateProvider) does not check that key and certificate belong together.
// gRPC 1.51 speaks TLS 1.2 and 1.3 with AEAD suites only, and ends a connection whose ALPN does not agree on HTTP/2.
// In the path: Newcomers hands a TCP connection to the acceptor that has these credentials.
// Ownership: borrows the certificates. Both must outlive the grpc::Server, which does not keep its credentials.
// Threads: gRPC asks on the thread that hands over a connection. It must be one thread, because gRPC 1.51 reads its
// newest certificates outside the lock under which it exchanges them.
#ifndef NORMD_SERVER_RPC_GRPC_TLS_CREDENTIALS_H_
#define NORMD_SERVER_RPC_GRPC_TLS_CREDENTIALS_H_

#include <grpc/grpc_security.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "server/security/server_certificates.h"

namespace normd::rpc {

class TlsCredentials : public grpc::ServerCredentials {
 public:
  // Clients are asked for a certificate if `certificates` has a CA for them; with `require_client_certificate`, those
  // without one are refused.
  TlsCredentials(const ServerCertificates* certificates, bool require_client_certificate);
  ~TlsCredentials() override;

  // Has no effect: the dispatcher judges calls.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override;
  static grpc_ssl_certificate_config_reload_status Fetch(void* self, grpc_ssl_server_certificate_config** config);

  const ServerCertificates* const certificates_;
  std::shared_ptr<const Certificates> fetched_;  // what gRPC has
  grpc_server_credentials* credentials_;         // owned
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_GRPC_TLS_CREDENTIALS_H_
