// The policy: which tenant an identity belongs to, what a tenant may use, and which identity may call which method.
// In the path: policy_file.h reads it, AccessRules (access_rules.h) asks it once for each pair of identity and method.
// Threads: a Policy is a plain value, constant once it is parsed.
#ifndef NORMD_SERVER_SECURITY_POLICY_H_
#define NORMD_SERVER_SECURITY_POLICY_H_

#include <string>
#include <string_view>
#include <vector>

#include "server/base/tenant_quotas.h"

namespace normd {

struct TenantPolicy {
  std::string name;                     // a-z 0-9 -, 1 to 63
  std::vector<std::string> identities;  // patterns, in which * matches any characters
  TenantQuotas quotas;
};

// Calls by any of `identities` to any of `methods`; both are lists of patterns.
struct AccessRule {
  std::vector<std::string> identities;
  std::vector<std::string> methods;  // "/normd.v1.Sessions/*"
};

struct Policy {
  // The tenant of the first pattern that matches; empty, which is the default tenant, if none does.
  std::string TenantOf(std::string_view identity) const;
  // Whether no rule denies the call and one allows it.
  bool Allows(std::string_view identity, std::string_view method) const;

  std::vector<TenantPolicy> tenants;
  std::vector<AccessRule> deny;
  std::vector<AccessRule> allow;
};

}  // namespace normd

#endif  // NORMD_SERVER_SECURITY_POLICY_H_
