// One shared-memory object of a client, mapped for reading and writing; the ranges of requests lie in such objects.
// In the path: RegionTable makes and owns mapped regions; kernels read and write through their ranges.
// Trust: the client keeps its own mapping and may change bytes at any time, so nothing read from here is trusted twice.
// The client can also truncate the object unless the object is sealed (memfd with F_SEAL_SHRINK), so the size of an
// unsealed object is looked up again before every use. Sealed or not, every region is guarded against faults: a sealed
// object may have holes, and the system may have no memory for a page when it is touched.
// Memory: pages that the client has not taken are taken from this process's memory once they are written (or read).
// Holes are not refused, because a client can punch them at any later time and because new objects of tmpfs consist of
// nothing else; their cost is bounded, because a region counts in full against the limits of RegionTable.
// Threads: every method is safe from any thread.
#ifndef NORMD_SERVER_SHM_MAPPED_REGION_H_
#define NORMD_SERVER_SHM_MAPPED_REGION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/unique_fd.h"
#include "server/shm/fault_guard.h"

namespace normd {

class MappedRegion {
 public:
  // INVALID_ARGUMENT unless size_bytes is 1 to max_size_bytes. FromDescriptor and FromPosixName check this first.
  static absl::Status CheckSize(uint64_t size_bytes, int64_t max_size_bytes);

  // Maps the first `size_bytes` of the object: 1 to min(size of the object, `max_size_bytes`). The descriptor is closed
  // on every failure and, if the object is sealed, also on success. If the client has taken all pages of the object,
  // they are mapped at once (0.1 s per GiB), so that no request waits for them.
  // INVALID_ARGUMENT, each naming its field: a descriptor of anything but a regular file of tmpfs (which memfd_create
  // and shm_open make; pipes, devices, folders, disk files and huge pages, which can fault although sealed, are
  // refused), one that cannot be mapped for writing, a size out of range. RESOURCE_EXHAUSTED: no address space, or no
  // room in FaultGuard's table.
  static absl::StatusOr<std::unique_ptr<MappedRegion>> FromDescriptor(UniqueFd descriptor, uint64_t size_bytes,
                                                                      int64_t max_size_bytes);

  // The same for the POSIX shared-memory object `name`: a slash and 1 to 250 other characters, starting with one of
  // `allowed_prefixes` (none: every name is refused). The object is opened with this server's rights, so the prefixes
  // decide which objects callers can reach. NOT_FOUND if it cannot be opened. Errors do not repeat the name.
  static absl::StatusOr<std::unique_ptr<MappedRegion>> FromPosixName(std::string_view name,
                                                                     const std::vector<std::string>& allowed_prefixes,
                                                                     uint64_t size_bytes, int64_t max_size_bytes);

  // REQUIRES: nothing accesses the bytes any more.
  ~MappedRegion();
  MappedRegion(const MappedRegion&) = delete;
  MappedRegion& operator=(const MappedRegion&) = delete;

  std::byte* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }
  bool sealed() const { return !descriptor_.valid(); }

  // Whether an access met no memory, for instance because the object was truncated: everything read since is zeros, and
  // everything written is lost. Costs one load.
  bool truncated() const { return guard_->truncated(); }

  // To be called before a use: FAILED_PRECONDITION (RegionTruncatedError) if the region is truncated or the object is
  // now shorter than the mapping. Costs a system call for an unsealed region, a load for a sealed one.
  absl::Status CheckNotTruncated() const;

 private:
  MappedRegion(std::byte* data, int64_t size_bytes) : data_(data), size_bytes_(size_bytes) {}

  std::byte* const data_;
  const int64_t size_bytes_;
  UniqueFd descriptor_;                // valid for unsealed objects only
  std::unique_ptr<FaultGuard> guard_;  // not null once the region is made
};

}  // namespace normd

#endif  // NORMD_SERVER_SHM_MAPPED_REGION_H_
