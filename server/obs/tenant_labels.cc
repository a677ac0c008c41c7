#include "server/obs/tenant_labels.h"

#include <algorithm>

namespace normd {

void TenantLabels::Know(const std::vector<std::string>& tenants) {
  MutexLock lock(know_mu_);
  for (const std::string& tenant : tenants) {
    const size_t size = size_.load(std::memory_order_relaxed);
    if (size == kMaxLabels) return;
    const bool known = std::find(names_.begin(), names_.begin() + size, tenant) != names_.begin() + size;
    if (tenant.empty() || known) continue;
    names_[size] = tenant;
    size_.store(size + 1, std::memory_order_release);
  }
}

int TenantLabels::Index(std::string_view tenant) const {
  if (tenant.empty()) return kDefault;
  const auto end = names_.begin() + size();
  const auto found = std::find(names_.begin(), end, tenant);
  return found == end ? kOther : static_cast<int>(found - names_.begin());
}

}  // namespace normd
