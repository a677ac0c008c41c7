#include "server/security/access_rules.h"

#include <utility>

#include "kernels/base/strings.h"

namespace normd {

AccessRules::AccessRules(uint64_t generation, std::vector<std::string> methods, TokenList tokens,
                         std::optional<Policy> policy)
    : generation_(generation), methods_(std::move(methods)), tokens_(std::move(tokens)), policy_(std::move(policy)) {
  token_callers_.reserve(tokens_.rows().size());
  for (const TokenRow& row : tokens_.rows()) {
    auto caller = std::make_shared<Caller>(*MakeCaller(Concat("token:", row.name)));
    caller->expires = row.expires;
    token_callers_.push_back(std::move(caller));
  }
}

CallerPtr AccessRules::MakeCaller(std::string name) const {
  auto caller = std::make_shared<Caller>();
  if (policy_.has_value()) caller->identity.tenant = policy_->TenantOf(name);
  caller->allowed.reserve(methods_.size());
  for (const std::string& method : methods_) caller->allowed.push_back(AllowsPath(name, method));
  caller->identity.name = std::move(name);
  return caller;
}

CallerPtr AccessRules::CallerOfToken(std::string_view token) const {
  const std::optional<size_t> row = tokens_.Find(token);
  return row.has_value() ? token_callers_[*row] : nullptr;
}

}  // namespace normd
