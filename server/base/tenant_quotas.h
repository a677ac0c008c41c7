// What each tenant may have at one time, and how often a tenant was refused for it. The store, the admission of calls
// and the table of shared memory ask here before they grant anything.
// In the path: beside it; server.cc makes one table, and the reader of the policy fills it, also while the server runs.
// Threads: everything is safe from any thread. The lock is taken for creations and large calls, never for a small call.
#ifndef NORMD_SERVER_BASE_TENANT_QUOTAS_H_
#define NORMD_SERVER_BASE_TENANT_QUOTAS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "server/base/mutex.h"

namespace normd {

// The quotas of one tenant. Without a value only the server's limits hold.
struct TenantQuotas {
  std::optional<int64_t> max_sessions;
  std::optional<int64_t> max_session_bytes;    // parameters and statistics, and 1 KiB for each session
  std::optional<int64_t> max_in_flight_bytes;  // of calls that are large enough to count against their caller
  std::optional<int64_t> max_regions;
  std::optional<int64_t> max_region_bytes;
};

enum class TenantQuota : uint8_t { kSessions, kSessionBytes, kInFlightBytes, kRegions, kRegionBytes };

struct TenantQuotaInfo {
  std::string_view key;  // in the policy
  std::optional<int64_t> TenantQuotas::*value;
  bool bytes;              // whether the policy may give it with a unit
  std::string_view field;  // in errors
};

// By TenantQuota.
inline constexpr std::array<TenantQuotaInfo, 5> kTenantQuotas = {{
    {"max_sessions", &TenantQuotas::max_sessions, false, "sessions of the tenant"},
    {"max_session_bytes", &TenantQuotas::max_session_bytes, true, "bytes of the tenant's sessions"},
    {"max_in_flight_bytes", &TenantQuotas::max_in_flight_bytes, true, "bytes_in_flight_of_tenant"},
    {"max_regions", &TenantQuotas::max_regions, false, "regions of the tenant"},
    {"max_region_bytes", &TenantQuotas::max_region_bytes, true, "bytes of the tenant's regions"},
}};

class TenantQuotaTable {
 public:
  using ByTenant = std::map<std::string, TenantQuotas, std::less<>>;

  // Replaces all quotas. What tenants have already is not taken from them; a tenant over its new quota gets no more.
  void Set(ByTenant quotas);
  // The quotas of `tenant`; none for a tenant that Set did not name.
  TenantQuotas Of(std::string_view tenant) const;

  // OK if `used`, which includes the `more` that is asked for, is within the tenant's quota. Otherwise
  // RESOURCE_EXHAUSTED that names the quota, and the refusal is counted: LIMIT_EXCEEDED, or NO_ROOM if the bytes in
  // flight of other calls are in the way.
  absl::Status Check(std::string_view tenant, TenantQuota quota, int64_t used, int64_t more);

  // Refusals by tenant since the start; tenants that were never refused are left out.
  std::map<std::string, int64_t> refusals() const;

 private:
  mutable Mutex mu_;
  ByTenant quotas_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, int64_t, std::less<>> refusals_ ABSL_GUARDED_BY(mu_);
};

}  // namespace normd

#endif  // NORMD_SERVER_BASE_TENANT_QUOTAS_H_
