// Tokens and policy as they are at one time: who a caller is, and what the caller may do.
// In the path: AccessControl (access_control.h) holds the rules in force and replaces them as a whole, so that no call
// is judged by half of two.
// Ownership: shared and immutable. Threads: safe from any thread.
#ifndef NORMD_SERVER_SECURITY_ACCESS_RULES_H_
#define NORMD_SERVER_SECURITY_ACCESS_RULES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "server/security/identity.h"
#include "server/security/policy.h"
#include "server/security/token_list.h"

namespace normd {

// An identity with its rights.
struct Caller {
  Identity identity;
  std::vector<bool> allowed;  // by the index of a method
  absl::Time expires = absl::InfiniteFuture();
};

using CallerPtr = std::shared_ptr<const Caller>;

class AccessRules {
 public:
  // `methods` are the paths of the methods that there are. Without a policy everybody may call all of them.
  AccessRules(uint64_t generation, std::vector<std::string> methods, TokenList tokens, std::optional<Policy> policy);

  // Counts up with each change of the rules.
  uint64_t generation() const { return generation_; }

  // The caller that has this name.
  CallerPtr MakeCaller(std::string name) const;
  // The caller that has this token, expired or not; null if nobody has.
  CallerPtr CallerOfToken(std::string_view token) const;
  // Whether `caller` may call the method with this index in `methods`, or, beyond them, with this path.
  bool Allows(const Caller& caller, size_t method, std::string_view path) const {
    return method < caller.allowed.size() ? caller.allowed[method] : AllowsPath(caller.identity.name, path);
  }

  const std::optional<Policy>& policy() const { return policy_; }

 private:
  bool AllowsPath(std::string_view identity, std::string_view path) const {
    return !policy_.has_value() || policy_->Allows(identity, path);
  }

  const uint64_t generation_;
  const std::vector<std::string> methods_;
  const TokenList tokens_;
  const std::optional<Policy> policy_;
  std::vector<CallerPtr> token_callers_;  // in the order of tokens_.rows(); constant after construction
};

using AccessRulesPtr = std::shared_ptr<const AccessRules>;

}  // namespace normd

#endif  // NORMD_SERVER_SECURITY_ACCESS_RULES_H_
