// What a client's certificate makes of its holder: the name of an identity.
// In the path: each transport reads a certificate's names at the handshake and asks here. Pure functions, safe from any
// thread.
#ifndef NORMD_SERVER_SECURITY_CERTIFICATE_NAMES_H_
#define NORMD_SERVER_SECURITY_CERTIFICATE_NAMES_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace normd {

// The longest URI, DNS name or common name that is taken, in bytes. The name is in each audit line.
inline constexpr size_t kMaxCertificateNameBytes = 255;

// The first of each kind in a certificate; empty where there is none.
struct CertificateNames {
  std::string_view uri;
  std::string_view dns;
  std::string_view common_name;
};

// "uri:spiffe://prod/trainer", "dns:trainer.prod" or "cn:trainer": the URI if there is one, else the DNS name, in lower
// case because its case means nothing (RFC 4343), else the common name.
std::string IdentityName(const CertificateNames& names);

// Why a certificate whose holder IdentityName calls `name` is refused: "the client's certificate has a uri of 300
// bytes; the limit is 255". Empty if it is not.
std::string IdentityNameProblem(std::string_view name);

}  // namespace normd

#endif  // NORMD_SERVER_SECURITY_CERTIFICATE_NAMES_H_
