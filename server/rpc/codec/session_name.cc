#include "server/rpc/codec/session_name.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "proto/wire/crc32c.h"
#include "server/base/error_reasons.h"
#include "server/session/session_checks.h"
#include "server/session/session_key.h"

namespace normd::rpc {
namespace {

constexpr std::string_view kPrefix = "sessions/";

// What a page token begins with. A tenant stands in it as a checksum, because the token need not reveal its name: the
// store lists the sessions of the caller's own tenant in any case.
std::string PageTokenPrefix(const std::string& filter, std::string_view tenant) {
  if (tenant.empty()) return filter + "\n";
  return Concat(filter, "\n", absl::StrFormat("%08x", wire::Crc32c(tenant)), "/");
}

}  // namespace

absl::StatusOr<std::string> DecodeSessionName(const std::string& name, std::string_view field,
                                              std::string_view tenant) {
  const bool has_prefix = name.size() > kPrefix.size() && name.compare(0, kPrefix.size(), kPrefix) == 0;
  // An id with a slash could be the key of a session of another tenant.
  if (has_prefix && name.find('/', kPrefix.size()) == std::string::npos) {
    return SessionKey(tenant, std::string_view(name).substr(kPrefix.size()));
  }
  return FormError(field, name, "sessions/{id}", ServerReason("SESSION_NAME_FORM"));
}

absl::StatusOr<std::string> DecodeNewSessionId(const std::string& id, std::string_view tenant) {
  if (!id.empty()) NORMD_RETURN_IF_ERROR(ValidateSessionId(id));
  return SessionKey(tenant, id);
}

std::string EncodeSessionName(std::string_view key) { return Concat(kPrefix, IdOf(key)); }

std::string EncodePageToken(const std::string& filter, std::string_view after_key) {
  return absl::WebSafeBase64Escape(PageTokenPrefix(filter, TenantOf(after_key)) + std::string(IdOf(after_key)));
}

absl::StatusOr<std::string> DecodePageToken(const std::string& filter, const std::string& token,
                                            std::string_view tenant) {
  if (token.empty()) return std::string();
  std::string plain;
  const std::string prefix = PageTokenPrefix(filter, tenant);
  if (absl::WebSafeBase64Unescape(token, &plain) && plain.compare(0, prefix.size(), prefix) == 0) {
    // The rest must have the form of an id, because it is compared with ids in a database that takes no other bytes.
    const std::string after_id = plain.substr(prefix.size());
    if (ValidateSessionId(after_id).ok()) return SessionKey(tenant, after_id);
  }
  return FormError("page_token", token, "a next_page_token of a list with the same filter", ServerReason("PAGE_TOKEN"));
}

}  // namespace normd::rpc
