#include "server/shm/mapped_region.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "server/base/error_reasons.h"
#include "server/base/errors.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older headers lack it
#endif

namespace normd {
namespace {

constexpr size_t kMaxPosixNameBytes = 251;  // with the slash; glibc refuses longer ones

absl::Status DescriptorError(std::string_view value) {
  return OutOfRangeError("descriptor", value,
                         "a memory object open for reading and writing: memfd_create without huge pages, or shm_open",
                         ServerReason("BAD_DESCRIPTOR"));
}

absl::Status PosixNameError(std::string_view value) {
  return OutOfRangeError("posix_name", value, "a slash and 1 to 250 other characters, with an allowed prefix",
                         ServerReason("BAD_POSIX_NAME"));
}

absl::Status CheckPosixName(std::string_view name, const std::vector<std::string>& allowed_prefixes) {
  const bool form = name.size() >= 2 && name.size() <= kMaxPosixNameBytes && name[0] == '/' && name != "/." &&
                    name != "/.." && name.find('/', 1) == std::string_view::npos &&
                    name.find('\0') == std::string_view::npos;
  if (!form) return PosixNameError(absl::StrCat("a name of ", name.size(), " bytes in another form"));
  const bool allowed = std::any_of(allowed_prefixes.begin(), allowed_prefixes.end(),
                                   [name](std::string_view prefix) { return name.starts_with(prefix); });
  return allowed ? absl::OkStatus() : PosixNameError("a name with another prefix");
}

struct ObjectSize {
  int64_t size_bytes = 0;
  int64_t taken_bytes = 0;  // memory behind it; less than size_bytes if the object has holes
};

// Also checks that the object is one that can be shared.
absl::StatusOr<ObjectSize> FindObjectSize(int descriptor) {
  struct stat info {};
  if (fstat(descriptor, &info) != 0) return DescriptorError("not a descriptor");
  if (!S_ISREG(info.st_mode)) return DescriptorError("not a regular file");
  struct statfs system {};
  if (fstatfs(descriptor, &system) != 0 || system.f_type != TMPFS_MAGIC) {
    return DescriptorError("a file that is not in memory");
  }
  return ObjectSize{.size_bytes = info.st_size, .taken_bytes = info.st_blocks * 512};
}

absl::Status MapError(int error) {
  if (error == ENOMEM || error == EAGAIN) {
    return absl::ResourceExhaustedError("region cannot be mapped: the server has no address space left");
  }
  return DescriptorError(absl::StrCat("a file that cannot be mapped (", std::generic_category().message(error), ")"));
}

}  // namespace

absl::Status MappedRegion::CheckSize(uint64_t size_bytes, int64_t max_size_bytes) {
  if (size_bytes >= 1 && size_bytes <= static_cast<uint64_t>(max_size_bytes)) return absl::OkStatus();
  return OutOfRangeError("size_bytes", absl::StrCat(size_bytes), absl::StrCat("1 to ", max_size_bytes),
                         ServerReason("REGION_SIZE"));
}

absl::StatusOr<std::unique_ptr<MappedRegion>> MappedRegion::FromDescriptor(UniqueFd descriptor, uint64_t size_bytes,
                                                                           int64_t max_size_bytes) {
  NORMD_RETURN_IF_ERROR(CheckSize(size_bytes, max_size_bytes));
  // The seals are read before the size, so that an object found sealed stays at least as long as it is found to be
  // next.
  const int seals = fcntl(descriptor.get(), F_GET_SEALS);
  const bool sealed = seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
  NORMD_ASSIGN_OR_RETURN(const ObjectSize object, FindObjectSize(descriptor.get()));
  if (static_cast<int64_t>(size_bytes) > object.size_bytes) {
    return OutOfRangeError("size_bytes", absl::StrCat(size_bytes),
                           absl::StrCat("at most ", object.size_bytes, ", the size of the object"),
                           ServerReason("REGION_SIZE"));
  }
  void* const data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
  if (data == MAP_FAILED) return MapError(errno);
  std::unique_ptr<MappedRegion> region(
      new MappedRegion(static_cast<std::byte*>(data), static_cast<int64_t>(size_bytes)));
  NORMD_ASSIGN_OR_RETURN(region->guard_, FaultGuard::Protect(data, region->size_bytes_));
  // Measured per page of 4 KiB that the client has written: 0.4 us here, 1.1 to 2 us at the first touch by a kernel.
  // Not done if pages are missing, because they would be taken from this process's memory. Kernels before 5.14 refuse,
  // which does no harm.
  if (object.taken_bytes >= static_cast<int64_t>(size_bytes)) madvise(data, size_bytes, MADV_POPULATE_WRITE);
  if (!sealed) region->descriptor_ = std::move(descriptor);
  return region;
}

absl::StatusOr<std::unique_ptr<MappedRegion>> MappedRegion::FromPosixName(
    std::string_view name, const std::vector<std::string>& allowed_prefixes, uint64_t size_bytes,
    int64_t max_size_bytes) {
  NORMD_RETURN_IF_ERROR(CheckSize(size_bytes, max_size_bytes));
  NORMD_RETURN_IF_ERROR(CheckPosixName(name, allowed_prefixes));
  // O_NONBLOCK: no waiting if the name is a pipe's. O_NOFOLLOW: no following if it is a link's (shm_open does that
  // itself).
  UniqueFd descriptor(shm_open(std::string(name).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0));
  if (!descriptor.valid()) {
    const std::string why = std::generic_category().message(errno);
    return MakeError(
        ServerReason("OBJECT_NOT_FOUND"),
        {.field = "posix_name", .value = why, .limit = "a shared-memory object that this server may read and write"},
        absl::StrCat("cannot be opened (", why,
                     "); it must be a shared-memory object that this server may read and write"));
  }
  return FromDescriptor(std::move(descriptor), size_bytes, max_size_bytes);
}

MappedRegion::~MappedRegion() {
  guard_.reset();  // first, because another mapping may get the address once this one is gone
  munmap(data_, static_cast<size_t>(size_bytes_));
}

absl::Status MappedRegion::CheckNotTruncated() const {
  if (sealed() && !truncated()) return absl::OkStatus();
  struct stat info {};
  const bool intact = !truncated() && fstat(descriptor_.get(), &info) == 0 && info.st_size >= size_bytes_;
  return intact ? absl::OkStatus() : RegionTruncatedError();
}

}  // namespace normd
