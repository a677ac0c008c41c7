#include "server/shm/region_table.h"

#include <sys/random.h>

#include <cerrno>
#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "server/base/error_reasons.h"
#include "server/base/errors.h"

namespace normd {
namespace {

constexpr size_t kNameBytes = 16;  // 128 bits: cannot be guessed

absl::StatusOr<std::string> MakeName() {
  std::string random(kNameBytes, '\0');
  size_t filled = 0;
  while (filled < random.size()) {
    const ssize_t got = getrandom(random.data() + filled, random.size() - filled, 0);
    if (got < 0 && errno != EINTR) return absl::UnavailableError("the system has no random numbers");
    if (got > 0) filled += static_cast<size_t>(got);
  }
  return absl::StrCat("r-", absl::BytesToHexString(random));
}

absl::Status CheckRange(const Region& region, uint64_t offset, uint64_t size_bytes) {
  const uint64_t region_bytes = static_cast<uint64_t>(region.size_bytes());
  if (offset > region_bytes) {
    return OutOfRangeError("offset", absl::StrCat(offset),
                           absl::StrCat("at most ", region_bytes, ", the size of the region"),
                           ServerReason("RANGE_OUT_OF_REGION"));
  }
  if (size_bytes > region_bytes - offset) {
    return OutOfRangeError(
        "size_bytes", absl::StrCat(size_bytes),
        absl::StrCat("at most ", region_bytes - offset, ", the rest of the region from offset ", offset),
        ServerReason("RANGE_OUT_OF_REGION"));
  }
  return absl::OkStatus();
}

template <typename Memory>
absl::StatusOr<Region> RegionOf(absl::StatusOr<Memory> memory) {
  if (!memory.ok()) return memory.status();
  return Region(*std::move(memory));
}

}  // namespace

// Counts mapped regions and their bytes, in all, per owner and per tenant. Thread-safe.
class RegionTable::Budget {
 public:
  struct Payer {
    std::string owner, tenant;
  };

  // REQUIRES: 0 <= size_bytes <= limits.max_region_bytes.
  absl::Status Take(const RegionLimits& limits, const Payer& payer, int64_t size_bytes) {
    MutexLock lock(mu_);
    const Stats own = Find(owners_, payer.owner);
    NORMD_RETURN_IF_ERROR(Check("regions", "--max_regions", all_.regions, 1, limits.max_regions));
    NORMD_RETURN_IF_ERROR(Check("regions of one owner", "--max_regions", own.regions, 1, limits.max_owner_regions));
    NORMD_RETURN_IF_ERROR(
        Check("bytes of all regions", "--max_region_bytes", all_.bytes, size_bytes, limits.max_total_bytes));
    NORMD_RETURN_IF_ERROR(
        Check("bytes of one owner's regions", "--max_region_bytes", own.bytes, size_bytes, limits.max_owner_bytes));
    if (limits.quotas != nullptr) {
      const Stats used = Find(tenants_, payer.tenant);
      NORMD_RETURN_IF_ERROR(limits.quotas->Check(payer.tenant, TenantQuota::kRegions, used.regions + 1, 1));
      NORMD_RETURN_IF_ERROR(
          limits.quotas->Check(payer.tenant, TenantQuota::kRegionBytes, used.bytes + size_bytes, size_bytes));
    }
    Change(payer, 1, size_bytes);
    return absl::OkStatus();
  }

  void GiveBack(const Payer& payer, int64_t size_bytes) {
    MutexLock lock(mu_);
    Change(payer, -1, -size_bytes);
  }

  Stats all() const {
    MutexLock lock(mu_);
    return all_;
  }

 private:
  static Stats Find(const std::map<std::string, Stats>& counted, const std::string& name) {
    const auto found = counted.find(name);
    return found == counted.end() ? Stats() : found->second;
  }

  static absl::Status Check(std::string_view field, std::string_view option, int64_t used, int64_t more,
                            int64_t limit) {
    return more <= limit - used ? absl::OkStatus() : LimitExceededError(field, used + more, limit, {.option = option});
  }

  void Change(const Payer& payer, int64_t regions, int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    Stats& own = owners_[payer.owner];
    Stats& of_tenant = tenants_[payer.tenant];
    for (Stats* stats : {&all_, &own, &of_tenant}) {
      stats->regions += regions;
      stats->bytes += bytes;
    }
    if (own.regions == 0) owners_.erase(payer.owner);
    if (of_tenant.regions == 0) tenants_.erase(payer.tenant);
  }

  mutable Mutex mu_;
  Stats all_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Stats> owners_ ABSL_GUARDED_BY(mu_);   // owners with regions
  std::map<std::string, Stats> tenants_ ABSL_GUARDED_BY(mu_);  // tenants with regions
};

RegionTable::RegionTable(RegionLimits limits, CudaOpener cuda, WorkPool* work_pool)
    : limits_(std::move(limits)),
      budget_(std::make_shared<Budget>()),
      cuda_(CudaHandles::Create(std::move(cuda))),
      work_pool_(work_pool) {}
RegionTable::~RegionTable() = default;

absl::StatusOr<std::string> RegionTable::AddDescriptor(const RegionOwner& owner, UniqueFd descriptor,
                                                       uint64_t size_bytes) {
  return Add(owner, size_bytes, [&] {
    return RegionOf(MappedRegion::FromDescriptor(std::move(descriptor), size_bytes, limits_.max_region_bytes));
  });
}

absl::StatusOr<std::string> RegionTable::AddPosixName(const RegionOwner& owner, std::string_view posix_name,
                                                      uint64_t size_bytes) {
  return Add(owner, size_bytes, [&] {
    return RegionOf(
        MappedRegion::FromPosixName(posix_name, limits_.posix_prefixes, size_bytes, limits_.max_region_bytes));
  });
}

absl::StatusOr<std::string> RegionTable::AddCuda(const RegionOwner& owner, const CudaRange& range,
                                                 uint64_t size_bytes) {
  NORMD_RETURN_IF_ERROR(cuda_->Check(range));
  return Add(owner, size_bytes, [&] { return RegionOf(cuda_->Open(range, static_cast<int64_t>(size_bytes))); });
}

absl::StatusOr<std::string> RegionTable::Add(const RegionOwner& owner, uint64_t size_bytes, Map map) {
  NORMD_RETURN_IF_ERROR(MappedRegion::CheckSize(size_bytes, limits_.max_region_bytes));
  NORMD_ASSIGN_OR_RETURN(std::string name, MakeName());
  const Budget::Payer payer = {std::string(owner.name), std::string(owner.tenant)};
  const int64_t bytes = static_cast<int64_t>(size_bytes);
  NORMD_RETURN_IF_ERROR(budget_->Take(limits_, payer, bytes));
  absl::StatusOr<Region> mapped = map();
  if (!mapped.ok()) {
    budget_->GiveBack(payer, bytes);
    return mapped.status();
  }
  // The room is free again once the region is unmapped, not when the region is removed.
  std::shared_ptr<const Region> region(new Region(*std::move(mapped)),
                                       [budget = budget_, payer, bytes](const Region* last) {
                                         delete last;
                                         budget->GiveBack(payer, bytes);
                                       });
  MutexLock lock(mu_);
  regions_.emplace(name, Entry{payer.owner, payer.tenant, std::move(region)});
  return name;
}

absl::Status RegionTable::Remove(std::string_view owner, std::string_view name) {
  Entry removed;  // destroyed after the lock is released, because unmapping is a system call
  MutexLock lock(mu_);
  const auto found = regions_.find(name);
  if (found == regions_.end() || found->second.owner != owner) return RegionNotFoundError();
  removed = std::move(found->second);
  regions_.erase(found);
  return absl::OkStatus();
}

void RegionTable::RemoveOwner(std::string_view owner) {
  std::vector<Entry> removed;  // as above
  MutexLock lock(mu_);
  for (auto region = regions_.begin(); region != regions_.end();) {
    if (region->second.owner != owner) {
      ++region;
      continue;
    }
    removed.push_back(std::move(region->second));
    region = regions_.erase(region);
  }
}

std::shared_ptr<const Region> RegionTable::Pin(std::shared_ptr<const Region> region) const {
  if (work_pool_ == nullptr) return region;
  const Region* const pinned = region.get();
  return {pinned, [pool = work_pool_, region = std::move(region)](const Region* last) mutable {
            if (region.use_count() > 1) return region.reset();  // others still use the region
            pool->RunIfLarge(last->size_bytes(), [region = std::move(region)] {});
          }};
}

absl::StatusOr<RegionRange> RegionTable::Acquire(std::string_view tenant, std::string_view name, uint64_t offset,
                                                 uint64_t size_bytes) const {
  std::shared_ptr<const Region> region;
  {
    MutexLock lock(mu_);
    const auto found = regions_.find(name);
    if (found == regions_.end() || found->second.tenant != tenant) return RegionNotFoundError();
    region = found->second.region;
  }
  NORMD_RETURN_IF_ERROR(CheckRange(*region, offset, size_bytes));
  NORMD_RETURN_IF_ERROR(region->CheckNotTruncated());
  std::byte* const data = region->data() + offset;
  const MemorySpace space = region->space();
  return RegionRange{data, static_cast<int64_t>(size_bytes), Pin(std::move(region)), space};
}

RegionTable::Stats RegionTable::stats() const { return budget_->all(); }

}  // namespace normd
