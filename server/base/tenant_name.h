// The names of tenants: which there may be, and how the one that has none is shown. Pure functions.
// In the path: the policy gives names to tenants, and the keys of sessions hold them.
#ifndef NORMD_SERVER_BASE_TENANT_NAME_H_
#define NORMD_SERVER_BASE_TENANT_NAME_H_

#include <string_view>

namespace normd {

// How metrics and logs show the default tenant, whose name is empty. No other tenant may be called so.
inline constexpr std::string_view kDefaultTenantLabel = "default";

// Whether `name` has 1 to 63 characters of a-z 0-9 -.
bool HasTenantForm(std::string_view name);

// The name, or kDefaultTenantLabel for the default tenant. Borrows from `name`.
inline std::string_view TenantLabel(std::string_view name) { return name.empty() ? kDefaultTenantLabel : name; }

}  // namespace normd

#endif  // NORMD_SERVER_BASE_TENANT_NAME_H_
