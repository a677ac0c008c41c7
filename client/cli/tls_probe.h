// Why a connection failed, where gRPC only says that one did: asks the server itself, by a handshake of our own whose
// every step OpenSSL explains. For error messages of the programs alone; sends no request and no token.
// Safe from any thread. Takes a few seconds at most.
#ifndef NORMD_CLIENT_CLI_TLS_PROBE_H_
#define NORMD_CLIENT_CLI_TLS_PROBE_H_

#include <string>

#include "client/cpp/security.h"

namespace normd::client {

enum class TlsProblem {
  kNone,                // the handshake succeeded, nobody listens, or the target is no host:port
  kServerSpeaksTls,     // and was called in plain text
  kServerSpeaksNoTls,   // and was called by TLS
  kUnknownAuthority,    // the server's certificate does not come from the CA file
  kWrongName,           // the server's certificate is for other names
  kExpired,             // the server's certificate has expired, or is not valid yet
  kOtherCertificate,    // the server's certificate is refused for another reason
  kCertificateMissing,  // the server asks for a client certificate, and none was given
  kCertificateRefused,  // the server refuses the client's certificate
};

struct TlsFinding {
  TlsProblem problem = TlsProblem::kNone;
  std::string detail;  // OpenSSL's reason, or the names of the server's certificate; may be empty
};

// Connects to `target` as a Client with these options would.
TlsFinding ProbeTls(const std::string& target, const SecurityOptions& security);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_TLS_PROBE_H_
