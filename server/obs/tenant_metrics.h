// Metrics with the label `tenant`: one that is counted as events happen, and one that mirrors values kept elsewhere.
// In the path: rows of server/wiring/metrics.h.
// Ownership: both borrow the labels that they share, which must outlive them.
// Threads: every method is safe from any thread; counting takes no lock.
#ifndef NORMD_SERVER_OBS_TENANT_METRICS_H_
#define NORMD_SERVER_OBS_TENANT_METRICS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "server/obs/metric_set.h"
#include "server/obs/tenant_labels.h"

namespace normd {

// Add takes an index of the labels.
class TenantCounters : public Counters {
 public:
  TenantCounters(MetricSet* set, const TenantLabels* tenants, std::string_view name, std::string_view help);

  void Collect(std::vector<prometheus::ClientMetric>* series) const override;

 private:
  const TenantLabels* const tenants_;
};

class TenantMirror : private MirrorTable {
 public:
  // REQUIRES: `type` is no histogram.
  TenantMirror(MetricSet* set, const TenantLabels* tenants, std::string_view name, MetricType type,
               std::string_view help);

  // Shows `values` by tenant; those of tenants that are not known are added up. A gauge of a tenant that is not in
  // `values` is 0, and a counter never falls.
  void Set(const std::map<std::string, int64_t>& values);

  void Collect(std::vector<prometheus::ClientMetric>* series) const override;

 private:
  const TenantLabels* const tenants_;
};

}  // namespace normd

#endif  // NORMD_SERVER_OBS_TENANT_METRICS_H_
