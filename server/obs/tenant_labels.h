// The values of the label `tenant`, which all metrics by tenant share. Tenants become known while the server runs, as
// the policy names them, and their number is bounded all the same.
// In the path: beside it; the dispatcher resolves a call's tenant to an index once, which is then counted.
// Threads: every method is safe from any thread; only Know takes a lock.
#ifndef NORMD_SERVER_OBS_TENANT_LABELS_H_
#define NORMD_SERVER_OBS_TENANT_LABELS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "server/base/mutex.h"
#include "server/base/tenant_name.h"

namespace normd {

class TenantLabels {
 public:
  static constexpr int kDefault = 0;  // the index of the default tenant, which is called ""
  static constexpr int kOther = 1;    // the index of all tenants that are not known
  static constexpr size_t kMaxTenants = 64;
  static constexpr size_t kMaxLabels = kMaxTenants + 2;

  TenantLabels() = default;
  TenantLabels(const TenantLabels&) = delete;
  TenantLabels& operator=(const TenantLabels&) = delete;

  // Makes tenants known, up to kMaxTenants in all; those beyond stay "other". A tenant never becomes unknown again, so
  // an index stays valid. A tenant called "default" or "other" shares the label of that name.
  void Know(const std::vector<std::string>& tenants);

  // The index of a tenant, below kMaxLabels. Compares it with every known one.
  int Index(std::string_view tenant) const;

  // The labels so far, by index; those at less than size() never change.
  size_t size() const { return size_.load(std::memory_order_acquire); }
  const std::string& name(size_t index) const { return names_[index]; }

 private:
  Mutex know_mu_;  // held by Know: one writer at a time
  std::array<std::string, kMaxLabels> names_{std::string(kDefaultTenantLabel), "other"};
  std::atomic<size_t> size_{2};
};

}  // namespace normd

#endif  // NORMD_SERVER_OBS_TENANT_LABELS_H_
