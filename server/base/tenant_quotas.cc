#include "server/base/tenant_quotas.h"

#include <utility>

#include "kernels/base/strings.h"
#include "server/base/errors.h"

namespace normd {
void TenantQuotaTable::Set(ByTenant quotas) {
  MutexLock lock(mu_);
  quotas_.swap(quotas);
}

TenantQuotas TenantQuotaTable::Of(std::string_view tenant) const {
  MutexLock lock(mu_);
  const auto found = quotas_.find(tenant);
  return found == quotas_.end() ? TenantQuotas() : found->second;
}

absl::Status TenantQuotaTable::Check(std::string_view tenant, TenantQuota quota, int64_t used, int64_t more) {
  const TenantQuotaInfo& info = kTenantQuotas[static_cast<size_t>(quota)];
  int64_t limit = 0;
  {
    MutexLock lock(mu_);
    const auto found = quotas_.find(tenant);
    if (found == quotas_.end()) return absl::OkStatus();
    const std::optional<int64_t> value = found->second.*info.value;
    if (!value.has_value() || used <= *value) return absl::OkStatus();
    limit = *value;
    ++refusals_.try_emplace(std::string(tenant), 0).first->second;
  }
  const std::string option = Concat(info.key, " in the policy");
  const LimitNote note = {.unit = {}, .option = option};
  const bool passes = quota == TenantQuota::kInFlightBytes && more <= limit;
  return passes ? NoRoomError(info.field, used, limit, note) : LimitExceededError(info.field, used, limit, note);
}

std::map<std::string, int64_t> TenantQuotaTable::refusals() const {
  MutexLock lock(mu_);
  return {refusals_.begin(), refusals_.end()};
}

}  // namespace normd
