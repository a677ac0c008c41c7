#include "server/base/tenant_name.h"

#include <algorithm>
#include <cstddef>

namespace normd {

bool HasTenantForm(std::string_view name) {
  constexpr size_t kMaxBytes = 63;
  return !name.empty() && name.size() <= kMaxBytes && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

}  // namespace normd
