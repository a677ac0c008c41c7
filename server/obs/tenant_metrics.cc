#include "server/obs/tenant_metrics.h"

#include <array>

namespace normd {
namespace {

// A place for each label that may come to exist.
std::vector<Label> Places() { return {Label("tenant", std::vector<std::string>(TenantLabels::kMaxLabels))}; }

// Names the places, which are the series from `first` on, and drops those without a tenant.
void NamePlaces(const TenantLabels& tenants, size_t first, std::vector<prometheus::ClientMetric>* series) {
  const size_t size = tenants.size();
  series->resize(first + size);
  for (size_t index = 0; index < size; ++index) (*series)[first + index].label[0].value = tenants.name(index);
}

}  // namespace

TenantCounters::TenantCounters(MetricSet* set, const TenantLabels* tenants, std::string_view name,
                               std::string_view help)
    : Counters(set, name, Places(), help), tenants_(tenants) {}

void TenantCounters::Collect(std::vector<prometheus::ClientMetric>* series) const {
  const size_t first = series->size();
  Counters::Collect(series);
  NamePlaces(*tenants_, first, series);
}

TenantMirror::TenantMirror(MetricSet* set, const TenantLabels* tenants, std::string_view name, MetricType type,
                           std::string_view help)
    : MirrorTable(set, name, type, Places(), help), tenants_(tenants) {}

void TenantMirror::Set(const std::map<std::string, int64_t>& values) {
  std::array<double, TenantLabels::kMaxLabels> sums{};
  for (const auto& [tenant, value] : values) {
    sums[static_cast<size_t>(tenants_->Index(tenant))] += static_cast<double>(value);
  }
  for (size_t index = 0; index < sums.size(); ++index) MirrorTable::Set(index, sums[index]);
}

void TenantMirror::Collect(std::vector<prometheus::ClientMetric>* series) const {
  const size_t first = series->size();
  MirrorTable::Collect(series);
  NamePlaces(*tenants_, first, series);
}

}  // namespace normd
