// Why a connection failed, where gRPC only says that one did: asks the server itself, by a handshake of our own whose
// every step OpenSSL explains, and in plain text (plain_probe.h). For error messages of the programs alone; sends no
// request and no token. Safe from any thread. Takes some seconds at most.
#ifndef NORMD_CLIENT_CLI_TLS_PROBE_H_
#define NORMD_CLIENT_CLI_TLS_PROBE_H_

#include <string>

#include "client/cpp/security.h"

namespace normd::client {

enum class TlsProblem {
  kNone,                // nothing is wrong, or nobody listens
  kServerSpeaksTls,     // and was called in plain text
  kServerSpeaksNoTls,   // and was called by TLS
  kUnknownAuthority,    // the server's certificate does not come from the CA file
  kWrongName,           // the server's certificate is for other names
  kExpired,             // the server's certificate has expired, or is not valid yet
  kOtherCertificate,    // the server's certificate is refused for another reason
  kCertificateMissing,  // the server asks for a client certificate, and none was given
  kCertificateRefused,  // the server refuses the client's certificate
  kHelloRefused,        // the server answers an alert to the client's first words
  kServerSpeaksHttp1,   // in plain text
  kOtherProgram,        // it says something that is neither TLS nor HTTP
  kToldToGo,            // the server ends the connection with a text
  kClosesConnections,   // the server closes the connection without a byte, in plain text, too
  kSilent,              // the server takes the connection and says nothing
};

struct TlsFinding {
  TlsProblem problem = TlsProblem::kNone;
  std::string detail;  // OpenSSL's reason, the names of the server's certificate, or the server's words; may be empty
};

// Connects to `target` as a Client with these options would, and otherwise.
TlsFinding ProbeConnection(const std::string& target, const SecurityOptions& security);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_TLS_PROBE_H_
