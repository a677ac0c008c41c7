#include "server/security/certificate_names.h"

#include "absl/strings/ascii.h"
#include "kernels/base/strings.h"

namespace normd {

std::string IdentityName(const CertificateNames& names) {
  if (!names.uri.empty()) return Concat("uri:", names.uri);
  if (names.dns.empty()) return Concat("cn:", names.common_name);
  std::string dns(names.dns);
  absl::AsciiStrToLower(&dns);
  return Concat("dns:", dns);
}

std::string IdentityNameProblem(std::string_view name) {
  const size_t colon = name.find(':');
  const size_t bytes = name.size() - (colon + 1);
  if (colon == std::string_view::npos || bytes <= kMaxCertificateNameBytes) return "";
  return Concat("the client's certificate has a ", name.substr(0, colon), " of ", bytes, " bytes; the limit is ",
                kMaxCertificateNameBytes);
}

}  // namespace normd
