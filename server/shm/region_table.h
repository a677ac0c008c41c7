// The shared-memory regions of this server by name, bounded in number and bytes, in all, per owner and per tenant.
// In the path: Registrar and the RegisterRegion call add and remove regions; decoding a request acquires the ranges
// that the request names.
// Ownership: the table owns regions together with the ranges acquired from them. A removed region cannot be acquired
// any more; it is unmapped, or closed, when its last range goes, and counts against the limits until then. Ranges may
// outlive the table.
// Threads: every method is safe from any thread. No lock is held over a system call.
#ifndef NORMD_SERVER_SHM_REGION_TABLE_H_
#define NORMD_SERVER_SHM_REGION_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"
#include "server/base/tenant_quotas.h"
#include "server/base/unique_fd.h"
#include "server/base/work_pool.h"
#include "server/shm/cuda_memory.h"
#include "server/shm/region.h"

namespace normd {

struct RegionLimits {
  int64_t max_region_bytes = int64_t{1} << 30;
  int64_t max_total_bytes = int64_t{4} << 30;
  int64_t max_owner_bytes = int64_t{4} << 30;
  int max_regions = 256;
  int max_owner_regions = 64;
  std::vector<std::string> posix_prefixes = {"/normd-"};  // names that AddPosixName may open; empty: none
  TenantQuotaTable* quotas = nullptr;  // of tenants; borrowed. Null: tenants have no limits of their own
};

// Who registers a region. Borrows both names.
struct RegionOwner {
  // NOLINTNEXTLINE(google-explicit-constructor): an owner of the default tenant is its name.
  RegionOwner(std::string_view owner_name, std::string_view owner_tenant = {})
      : name(owner_name), tenant(owner_tenant) {}
  RegionOwner(const char* owner_name) : name(owner_name) {}         // NOLINT(google-explicit-constructor)
  RegionOwner(const std::string& owner_name) : name(owner_name) {}  // NOLINT(google-explicit-constructor)

  std::string_view name;  // what the limits per owner count by: a connection, a user
  std::string_view tenant;
};

// A part of a region, kept for as long as a request uses it.
struct RegionRange {
  std::byte* data = nullptr;
  int64_t size_bytes = 0;
  std::shared_ptr<const Region> pin = nullptr;  // keeps `data` mapped
  MemorySpace space = {};                       // where `data` lies

  // Whether the region was truncated during the use. Asked after the use and before the result is returned, so that the
  // call fails with RegionTruncatedError.
  bool truncated() const { return pin != nullptr && pin->truncated(); }
  // What must complete before anything reads or writes the range; null: nothing. Lives as long as `pin`.
  const CudaEvent* event() const { return pin == nullptr ? nullptr : pin->event(); }
};

class RegionTable {
 public:
  // `cuda` must work for as long as ranges live; without devices, AddCuda fails. `work_pool` (null: none) unmaps large
  // regions that were removed while a range used them; it must outlive every range.
  explicit RegionTable(RegionLimits limits, CudaOpener cuda = {}, WorkPool* work_pool = nullptr);
  ~RegionTable();
  RegionTable(const RegionTable&) = delete;
  RegionTable& operator=(const RegionTable&) = delete;

  // Maps the object and returns the region's name: "r-" and 32 hexadecimal digits, which others cannot guess. Limits
  // are checked, and their room is taken, before anything is mapped. Only callers of the owner's tenant can acquire the
  // region. Errors are MappedRegion's, RESOURCE_EXHAUSTED when a limit is reached, and UNAVAILABLE when
  // the system has no random numbers. The descriptor is closed in every case.
  absl::StatusOr<std::string> AddDescriptor(const RegionOwner& owner, UniqueFd descriptor, uint64_t size_bytes);
  absl::StatusOr<std::string> AddPosixName(const RegionOwner& owner, std::string_view posix_name, uint64_t size_bytes);
  // The same for CUDA memory, which counts against the limits like the host's. Errors: CudaHandles::Open's.
  absl::StatusOr<std::string> AddCuda(const RegionOwner& owner, const CudaRange& range, uint64_t size_bytes);

  // NOT_FOUND (RegionNotFoundError) unless `name` is a region of the owner of this name.
  absl::Status Remove(std::string_view owner, std::string_view name);
  void RemoveOwner(std::string_view owner);

  // The range that a request of a caller of `tenant` names; size_bytes may be 0. Whoever of the owner's tenant knows
  // the name may acquire: the name is a key, and no error repeats it. To other tenants the region does not exist.
  // Errors, with fields as in SharedRange: NOT_FOUND, INVALID_ARGUMENT (the range leaves the region),
  // FAILED_PRECONDITION (RegionTruncatedError).
  absl::StatusOr<RegionRange> Acquire(std::string_view tenant, std::string_view name, uint64_t offset,
                                      uint64_t size_bytes) const;

  struct Stats {
    int64_t regions = 0;  // mapped, including removed ones that are still in use
    int64_t bytes = 0;
  };
  Stats stats() const;
  const RegionLimits& limits() const { return limits_; }

 private:
  class Budget;
  struct Entry {
    std::string owner;
    std::string tenant;
    std::shared_ptr<const Region> region;  // gives its room in the budget back when destroyed
  };
  struct Hash {
    using is_transparent = void;  // NOLINT(readability-identifier-naming): the standard looks for this name
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
  };
  using Map = absl::FunctionRef<absl::StatusOr<Region>()>;

  absl::StatusOr<std::string> Add(const RegionOwner& owner, uint64_t size_bytes, Map map);
  // Another reference to `region`, for a range. If it is the last one, the region is unmapped on the pool and not on a
  // thread that serves requests.
  std::shared_ptr<const Region> Pin(std::shared_ptr<const Region> region) const;

  // Constant after construction.
  const RegionLimits limits_;
  const std::shared_ptr<Budget> budget_;     // shared with regions that outlive the table
  const std::shared_ptr<CudaHandles> cuda_;  // also shared with these regions
  WorkPool* const work_pool_;

  mutable Mutex mu_;
  std::unordered_map<std::string, Entry, Hash, std::equal_to<>> regions_ ABSL_GUARDED_BY(mu_);
};

}  // namespace normd

#endif  // NORMD_SERVER_SHM_REGION_TABLE_H_
