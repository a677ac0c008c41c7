#include "server/wiring/security_files.h"

#include <utility>

#include "kernels/base/status_macros.h"
#include "server/rpc/services/method_names.h"
#include "server/security/source_file.h"

namespace normd {

AccessOptions AccessOptionsOf(const Config& config) {
  return {.tokens_file = config.tokens_file,
          .policy_file = config.policy_file,
          .asks_certificates = !config.tls_client_ca.empty(),
          .methods = rpc::AllMethodPaths()};
}

CertificatePaths CertificatePathsOf(const Config& config) {
  return {.certificate = config.tls_certificate, .key = config.tls_key, .client_ca = config.tls_client_ca};
}

absl::StatusOr<std::string> ReadTraceCa(const Config& config) {
  if (config.trace_ca.empty()) return std::string();
  return ReadSourceFile({.option = "--trace_ca", .path = config.trace_ca});
}

absl::Status CheckSecurityFiles(const Config& config, Clock* clock) {
  if (!config.tls_certificate.empty()) {
    const CertificatePaths paths = CertificatePathsOf(config);
    std::string states;  // read once: nobody waits for a change
    NORMD_ASSIGN_OR_RETURN(CertificateTexts texts, ReadCertificates(paths, &states));
    NORMD_RETURN_IF_ERROR(CheckCertificates(paths, std::move(texts), clock->Now()).status());
  }
  NORMD_RETURN_IF_ERROR(AccessControl::Open(AccessOptionsOf(config), clock).status());
  return ReadTraceCa(config).status();
}

}  // namespace normd
