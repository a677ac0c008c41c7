#include "server/security/policy.h"

#include <algorithm>

#include "server/security/pattern.h"

namespace normd {
namespace {

bool AnyMatches(const std::vector<AccessRule>& rules, std::string_view identity, std::string_view method) {
  return std::any_of(rules.begin(), rules.end(), [identity, method](const AccessRule& rule) {
    return MatchesAny(rule.identities, identity) && MatchesAny(rule.methods, method);
  });
}

}  // namespace

std::string Policy::TenantOf(std::string_view identity) const {
  for (const TenantPolicy& tenant : tenants) {
    if (MatchesAny(tenant.identities, identity)) return tenant.name;
  }
  return "";
}

bool Policy::Allows(std::string_view identity, std::string_view method) const {
  return !AnyMatches(deny, identity, method) && AnyMatches(allow, identity, method);
}

}  // namespace normd
