// The server's certificate chain, its private key, and the CA of client certificates: reads the PEM files and checks
// that they can be served together.
// In the path: at the start and at each reload; gRPC gets the texts and parses them again.
// Threads: the functions are safe from any thread, and the structs are plain values.
#ifndef NORMD_SERVER_SECURITY_CERTIFICATES_H_
#define NORMD_SERVER_SECURITY_CERTIFICATES_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace normd {

struct CertificatePaths {
  std::string certificate;  // --tls_certificate: the server's certificate, then the intermediates
  std::string key;          // --tls_key
  std::string client_ca;    // --tls_client_ca; empty: clients are not asked for certificates
};

// The contents of the files, in PEM.
struct CertificateTexts {
  std::string certificate;
  std::string key;
  std::string client_ca;
};

// Texts that were checked together.
struct Certificates {
  CertificateTexts texts;
  std::string subject;  // of the server's certificate, for logs: "CN=normd.prod,O=Example"
  absl::Time expiry;    // the first moment at which a certificate of the server's chain is no longer valid
};

// Reads the files. Returns INVALID_ARGUMENT naming option, file and reason if one cannot be read, is larger than 1 MiB,
// or if others than the owner may read the key. Group-readable keys of root are allowed, because Kubernetes gives a
// secret that mode for a pod with an fsGroup. The states of the files are appended to `*states` (FileState in
// regular_file.h).
absl::StatusOr<CertificateTexts> ReadCertificates(const CertificatePaths& paths, std::string* states);

// Checks that the key is that of the certificate, that every certificate of the chain and at least one client CA is
// valid at `now`, and that OpenSSL accepts the strength of all of them. Returns INVALID_ARGUMENT naming option, file
// and reason otherwise.
absl::StatusOr<Certificates> CheckCertificates(const CertificatePaths& paths, CertificateTexts texts, absl::Time now);

}  // namespace normd

#endif  // NORMD_SERVER_SECURITY_CERTIFICATES_H_
