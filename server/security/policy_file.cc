#include "server/security/policy_file.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <utility>

#include "absl/types/span.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "proto/text/nearest_name.h"
#include "server/base/byte_size.h"
#include "server/base/tenant_name.h"
#include "server/security/pattern.h"
#include "toml++/toml.h"

namespace normd {
namespace {

constexpr std::string_view kTopKeys[] = {"tenant", "deny", "allow"};
constexpr std::string_view kRuleKeys[] = {"identities", "methods"};
// A name, identities, and the quotas.
constexpr auto kTenantKeys = [] {
  std::array<std::string_view, 2 + kTenantQuotas.size()> keys = {"name", "identities"};
  for (size_t i = 0; i < kTenantQuotas.size(); ++i) keys[2 + i] = kTenantQuotas[i].key;
  return keys;
}();
constexpr std::string_view kIdentityKinds[] = {"uri:", "dns:", "cn:", "token:", "uid:", "anonymous"};

// Whether `pattern` can match an identity of some kind: so far as neither ends, its text before the first * and the
// kind are the same.
bool CanBeIdentity(std::string_view pattern) {
  const size_t star = pattern.find('*');
  return std::any_of(std::begin(kIdentityKinds), std::end(kIdentityKinds), [=](std::string_view kind) {
    if (star == std::string_view::npos && kind == "anonymous") return pattern == kind;
    const std::string_view fixed = pattern.substr(0, star);
    return fixed.starts_with(kind) || (star != std::string_view::npos && kind.starts_with(fixed));
  });
}

class PolicyReader {
 public:
  PolicyReader(const SourceFile& file, const std::vector<std::string>& methods) : file_(file), methods_(methods) {}

  absl::StatusOr<Policy> Read(const toml::table& top) const {
    Policy policy;
    NORMD_RETURN_IF_ERROR(CheckKeys(top, "", kTopKeys));
    NORMD_RETURN_IF_ERROR(ForEach(top, "tenant", [&](const toml::table& table, const std::string& at) {
      return ReadTenant(table, at, &policy);
    }));
    for (const auto& [key, rules] : {std::pair("deny", &policy.deny), std::pair("allow", &policy.allow)}) {
      NORMD_RETURN_IF_ERROR(ForEach(top, key, [&, rules = rules](const toml::table& table, const std::string& at) {
        return ReadRule(table, at, &rules->emplace_back());
      }));
    }
    return policy;
  }

 private:
  using ReadTable = std::function<absl::Status(const toml::table&, const std::string& at)>;

  absl::Status Error(const toml::source_region& place, std::string_view what) const {
    return BadFileError(file_, static_cast<int>(place.begin.line), what);
  }

  // `at` is what the names of the keys are written behind: "allow[0].", or nothing.
  absl::Status CheckKeys(const toml::table& table, const std::string& at,
                         absl::Span<const std::string_view> names) const {
    for (const auto& [key, value] : table) {
      if (std::find(names.begin(), names.end(), key.str()) != names.end()) continue;
      const std::string_view nearest = NearestName(key.str(), names);
      std::string what = Concat(at, key.str(), " is no key of a policy");
      if (!nearest.empty()) what += Concat("; did you mean ", nearest, "?");
      return Error(key.source(), what);
    }
    return absl::OkStatus();
  }

  // Reads each table of [[key]].
  absl::Status ForEach(const toml::table& top, std::string_view key, const ReadTable& read) const {
    const toml::node* const node = top.get(key);
    if (node == nullptr) return absl::OkStatus();
    const toml::array* const tables = node->as_array();
    if (tables == nullptr) return Error(node->source(), Concat(key, " must be written as [[", key, "]]"));
    for (size_t i = 0; i < tables->size(); ++i) {
      const toml::table* const table = (*tables)[i].as_table();
      if (table == nullptr) return Error((*tables)[i].source(), Concat(key, " must be written as [[", key, "]]"));
      NORMD_RETURN_IF_ERROR(read(*table, Concat(key, "[", i, "].")));
    }
    return absl::OkStatus();
  }

  absl::Status ReadTenant(const toml::table& table, const std::string& at, Policy* policy) const {
    NORMD_RETURN_IF_ERROR(CheckKeys(table, at, kTenantKeys));
    TenantPolicy& tenant = policy->tenants.emplace_back();
    const toml::node* const name = table.get("name");
    tenant.name = name == nullptr ? "" : name->value_or(std::string());
    if (!HasTenantForm(tenant.name) || tenant.name == kDefaultTenantLabel) {
      return Error(name == nullptr ? table.source() : name->source(),
                   Concat(at, "name must have 1 to 63 characters a-z 0-9 -, and not be \"default\""));
    }
    const auto same = [&](const TenantPolicy& other) { return &other != &tenant && other.name == tenant.name; };
    if (std::any_of(policy->tenants.begin(), policy->tenants.end(), same)) {
      return Error(name->source(), Concat(at, "name is that of an earlier tenant"));
    }
    NORMD_ASSIGN_OR_RETURN(tenant.identities, ReadIdentities(table, at));
    for (const TenantQuotaInfo& quota : kTenantQuotas) {
      NORMD_ASSIGN_OR_RETURN(tenant.quotas.*quota.value, ReadQuota(table, at, quota));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<int64_t>> ReadQuota(const toml::table& table, const std::string& at,
                                                   const TenantQuotaInfo& quota) const {
    const toml::node* const node = table.get(quota.key);
    if (node == nullptr) return std::optional<int64_t>();
    std::optional<int64_t> value = node->is_integer() ? node->value<int64_t>() : std::nullopt;
    if (quota.bytes && node->is_string()) value = ParseBytes(node->value_or(std::string()));
    if (value.has_value() && *value >= 0) return value;
    return Error(node->source(),
                 Concat(at, quota.key, " must be ",
                        quota.bytes ? "a number of bytes such as \"64MiB\"" : "a number of at least 0"));
  }

  absl::Status ReadRule(const toml::table& table, const std::string& at, AccessRule* rule) const {
    NORMD_RETURN_IF_ERROR(CheckKeys(table, at, kRuleKeys));
    NORMD_ASSIGN_OR_RETURN(rule->identities, ReadIdentities(table, at));
    NORMD_ASSIGN_OR_RETURN(rule->methods, ReadPatterns(table, at, "methods", [this](std::string_view pattern) {
                             return CheckMethod(pattern);
                           }));
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> ReadIdentities(const toml::table& table, const std::string& at) const {
    return ReadPatterns(table, at, "identities", [](std::string_view pattern) -> std::string {
      if (CanBeIdentity(pattern)) return "";
      return "is no identity: those are uri:..., dns:..., cn:..., token:..., uid:... and anonymous";
    });
  }

  // Empty, or what is wrong.
  std::string CheckMethod(std::string_view pattern) const {
    const auto matches = [pattern](const std::string& method) { return MatchesPattern(pattern, method); };
    if (std::any_of(methods_.begin(), methods_.end(), matches)) return "";
    const std::vector<std::string_view> names(methods_.begin(), methods_.end());
    const std::string_view nearest = NearestName(pattern, names);
    return nearest.empty() ? "matches no method of this server" : Concat("is no method; did you mean ", nearest, "?");
  }

  // `check` says what is wrong with a pattern, or nothing.
  absl::StatusOr<std::vector<std::string>> ReadPatterns(
      const toml::table& table, const std::string& at, std::string_view key,
      const std::function<std::string(std::string_view)>& check) const {
    const std::string what = Concat(at, key, " must be a list of at least one text");
    const toml::node* const node = table.get(key);
    if (node == nullptr) return Error(table.source(), what);
    const toml::array* const list = node->as_array();
    if (list == nullptr || list->empty()) return Error(node->source(), what);
    std::vector<std::string> patterns;
    for (const toml::node& element : *list) {
      if (!element.is_string()) return Error(element.source(), what);
      patterns.push_back(element.value_or(std::string()));
      const std::string wrong = check(patterns.back());
      if (!wrong.empty()) return Error(element.source(), Concat(at, key, ": \"", patterns.back(), "\" ", wrong));
    }
    return patterns;
  }

  const SourceFile& file_;
  const std::vector<std::string>& methods_;
};

}  // namespace

absl::StatusOr<Policy> ParsePolicy(const SourceFile& file, std::string_view text,
                                   const std::vector<std::string>& methods) {
  toml::table top;
  try {
    top = toml::parse(text);
  } catch (const toml::parse_error& error) {
    return BadFileError(file, static_cast<int>(error.source().begin.line),
                        Concat("is not TOML: ", error.description()));
  }
  return PolicyReader(file, methods).Read(top);
}

}  // namespace normd
