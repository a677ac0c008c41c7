#include "server/security/policy.h"

#include <algorithm>

#include "server/security/pattern.h"

namespace normd {
namespace {

// DNS names have no case (RFC 4343), whoever wrote the pattern.
bool MatchesIdentity(const std::vector<std::string>& patterns, std::string_view identity) {
  return MatchesAny(patterns, identity, identity.starts_with("dns:") ? Case::kIgnored : Case::kMatters);
}

bool AnyMatches(const std::vector<AccessRule>& rules, std::string_view identity, std::string_view method) {
  return std::any_of(rules.begin(), rules.end(), [identity, method](const AccessRule& rule) {
    return MatchesIdentity(rule.identities, identity) && MatchesAny(rule.methods, method);
  });
}

}  // namespace

std::string Policy::TenantOf(std::string_view identity) const {
  for (const TenantPolicy& tenant : tenants) {
    if (MatchesIdentity(tenant.identities, identity)) return tenant.name;
  }
  return "";
}

bool Policy::Allows(std::string_view identity, std::string_view method) const {
  return !AnyMatches(deny, identity, method) && AnyMatches(allow, identity, method);
}

}  // namespace normd
