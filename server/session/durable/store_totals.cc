#include "server/session/durable/store_totals.h"

namespace normd {

StoreTotals::StoreTotals(const TableTotals& counted) {
  MutexLock lock(mu_);
  Replace(counted);
}

SessionTotals StoreTotals::all() const {
  MutexLock lock(mu_);
  return all_;
}

TotalsByTenant StoreTotals::by_tenant() const {
  MutexLock lock(mu_);
  return tenants_;
}

Totals StoreTotals::For(std::string_view tenant) const {
  MutexLock lock(mu_);
  return {.all = all_, .tenant = TotalsOf(tenants_, tenant)};
}

void StoreTotals::BeginWrite() {
  MutexLock lock(mu_);
  ++writes_begun_;
}

void StoreTotals::EndWrite(absl::Span<const Growth> growth) {
  MutexLock lock(mu_);
  for (const Growth& one : growth) {
    all_.sessions += one.more.sessions;
    all_.bytes += one.more.bytes;
    AddTo(&tenants_, one.tenant, one.more);
  }
  ++writes_ended_;
}

std::optional<int64_t> StoreTotals::BeginCount() const {
  MutexLock lock(mu_);
  if (writes_begun_ != writes_ended_) return std::nullopt;
  return writes_begun_;
}

void StoreTotals::EndCount(int64_t count, const TableTotals& counted) {
  MutexLock lock(mu_);
  if (writes_begun_ == count) Replace(counted);
}

void StoreTotals::Replace(const TableTotals& counted) {
  all_ = counted.all;
  tenants_ = counted.tenants;
  SessionTotals rest = counted.all;  // of the default tenant
  for (const auto& [tenant, own] : counted.tenants) {
    rest.sessions -= own.sessions;
    rest.bytes -= own.bytes;
  }
  if (rest.sessions > 0) tenants_.emplace("", rest);
}

}  // namespace normd
