#include "server/session/session_key.h"

#include <algorithm>

#include "kernels/base/errors.h"
#include "kernels/base/strings.h"
#include "server/base/error_reasons.h"
#include "server/base/tenant_name.h"
#include "server/session/session_checks.h"
#include "server/session/session_store.h"

namespace normd {

namespace {

constexpr char kMark = '/';  // begins the keys of tenants, and ends the tenant's name
// Behind all keys: the last character of Unicode, because PostgreSQL takes no other bytes.
constexpr std::string_view kBehindAllKeys = "\xf4\x8f\xbf\xbf";

bool IsOfTenant(std::string_view key) { return !key.empty() && key.front() == kMark; }

}  // namespace

std::string SessionKey(std::string_view tenant, std::string_view id) {
  return tenant.empty() ? std::string(id) : Concat("/", tenant, "/", id);
}

std::string_view TenantOf(std::string_view key) {
  if (!IsOfTenant(key)) return {};
  key.remove_prefix(1);
  return key.substr(0, key.find(kMark));
}

std::string_view IdOf(std::string_view key) {
  if (!IsOfTenant(key)) return key;
  const size_t end_of_tenant = key.find(kMark, 1);
  return end_of_tenant == std::string_view::npos ? std::string_view() : key.substr(end_of_tenant + 1);
}

absl::Status ValidateSessionKey(std::string_view key) {
  if (IsOfTenant(key) && !HasTenantForm(TenantOf(key))) {
    return FormError("tenant", std::string(TenantOf(key)), "1 to 63 characters of a-z 0-9 -",
                     ServerReason("SESSION_NAME_FORM"));
  }
  return ValidateSessionId(IdOf(key));
}

KeyRange RangeOf(const ListQuery& query) {
  KeyRange range = {.after = {}, .end = std::string(kBehindAllKeys)};
  if (!query.all_tenants && query.tenant.empty()) range.after = Concat("/", kBehindAllKeys);
  if (!query.all_tenants && !query.tenant.empty()) {
    range.after = SessionKey(query.tenant, {});
    range.end = range.after;
    ++range.end.back();  // the character behind the mark
  }
  range.after = std::max(range.after, query.after_id);
  return range;
}

}  // namespace normd
