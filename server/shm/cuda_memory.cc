#include "server/shm/cuda_memory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "server/base/error_reasons.h"
#include "server/base/errors.h"

namespace normd {
namespace {

constexpr char kDeviceField[] = "cuda.device";

absl::Status HandleLengthError(std::string_view field, std::string_view handle, std::string_view limit) {
  return AmountError(field, absl::StrCat(handle.size(), " bytes"), limit, KernelReason("BAD_CUDA_HANDLE"));
}

absl::Status CheckRange(const CudaAllocation& allocation, uint64_t offset, int64_t size_bytes) {
  const auto allocated = static_cast<uint64_t>(allocation.size_bytes);
  if (offset > allocated) {
    return OutOfRangeError("cuda.offset", absl::StrCat(offset),
                           absl::StrCat("at most ", allocated, ", the size of the allocation"),
                           ServerReason("REGION_SIZE"));
  }
  if (static_cast<uint64_t>(size_bytes) > allocated - offset) {
    return OutOfRangeError(
        "size_bytes", absl::StrCat(size_bytes),
        absl::StrCat("at most ", allocated - offset, ", the rest of the allocation from offset ", offset),
        ServerReason("REGION_SIZE"));
  }
  return absl::OkStatus();
}

}  // namespace

std::shared_ptr<CudaHandles> CudaHandles::Create(CudaOpener opener) {
  return std::shared_ptr<CudaHandles>(new CudaHandles(std::move(opener)));
}

absl::Status CudaHandles::Check(const CudaRange& range) const {
  if (opener_.devices.empty()) return CudaNotAvailableError("cuda");
  if (range.handle.size() != kCudaHandleBytes) {
    return HandleLengthError("cuda.ipc_handle", range.handle, absl::StrCat(kCudaHandleBytes, " bytes"));
  }
  if (!range.event_handle.empty() && range.event_handle.size() != kCudaHandleBytes) {
    return HandleLengthError("cuda.event_handle", range.event_handle, absl::StrCat(kCudaHandleBytes, " bytes, or 0"));
  }
  if (std::find(opener_.devices.begin(), opener_.devices.end(), range.device) == opener_.devices.end()) {
    return OutOfRangeError(kDeviceField, absl::StrCat(range.device),
                           absl::StrCat("a device that this server uses: ", absl::StrJoin(opener_.devices, ", ")),
                           KernelReason("CUDA_DEVICE"));
  }
  return absl::OkStatus();
}

absl::StatusOr<CudaRegion> CudaHandles::Open(const CudaRange& range, int64_t size_bytes) {
  NORMD_RETURN_IF_ERROR(Check(range));
  CudaRegion region;
  NORMD_ASSIGN_OR_RETURN(region.opened_, Take(std::string(range.handle), range.device));
  NORMD_RETURN_IF_ERROR(CheckRange(*region.opened_, range.offset, size_bytes));
  if (!range.event_handle.empty()) {
    NORMD_ASSIGN_OR_RETURN(region.event_, OpenEvent(range.event_handle, range.device));
  }
  region.data_ = region.opened_->data + range.offset;
  region.size_bytes_ = size_bytes;
  region.device_ = range.device;
  return region;
}

// Each registration opens an event of its own, because CUDA opens an event's handle any number of times.
absl::StatusOr<std::shared_ptr<const CudaEvent>> CudaHandles::OpenEvent(std::string_view handle, int device) {
  NORMD_ASSIGN_OR_RETURN(void* const event, opener_.open_event(handle, device));
  const std::shared_ptr<const CudaOpener> opener(shared_from_this(), &opener_);
  return std::make_shared<const CudaEvent>(opener, event, device);
}

absl::StatusOr<std::shared_ptr<const CudaAllocation>> CudaHandles::Take(const std::string& handle, int device) {
  NORMD_ASSIGN_OR_RETURN(const bool open, TakeOpen(handle, device));
  if (!open) {
    const absl::StatusOr<CudaAllocation> opened = opener_.open(handle, device);
    EndOpening(handle, opened);
    if (!opened.ok()) return opened.status();
  }
  return Pin(handle);
}

absl::StatusOr<bool> CudaHandles::TakeOpen(const std::string& handle, int device) {
  MutexLock lock(mu_);
  auto found = entries_.find(handle);
  while (found != entries_.end() && !found->second.ready) {
    changed_.Wait(mu_);
    found = entries_.find(handle);
  }
  if (found == entries_.end()) {
    entries_[handle].device = device;
    return false;
  }
  Entry& entry = found->second;
  if (entry.device != device) {
    return OutOfRangeError(kDeviceField, absl::StrCat(device),
                           absl::StrCat(entry.device, ", which the handle is registered with already"),
                           KernelReason("CUDA_DEVICE"));
  }
  ++entry.users;
  return true;
}

void CudaHandles::EndOpening(const std::string& handle, const absl::StatusOr<CudaAllocation>& opened) {
  MutexLock lock(mu_);
  if (opened.ok()) {
    Entry& entry = entries_[handle];
    entry.allocation = *opened;
    entry.users = 1;
    entry.ready = true;
  } else {
    entries_.erase(handle);
  }
  changed_.SignalAll();
}

std::shared_ptr<const CudaAllocation> CudaHandles::Pin(const std::string& handle) {
  MutexLock lock(mu_);
  auto allocation = std::make_unique<const CudaAllocation>(entries_[handle].allocation);
  return {allocation.release(), [self = shared_from_this(), handle](const CudaAllocation* last) {
            delete last;
            self->Release(handle);
          }};
}

void CudaHandles::Release(const std::string& handle) {
  CudaAllocation allocation;
  int device = 0;
  {
    MutexLock lock(mu_);
    Entry& entry = entries_[handle];
    if (--entry.users > 0) return;
    entry.ready = false;
    allocation = entry.allocation;
    device = entry.device;
  }
  opener_.close(allocation, device);
  MutexLock lock(mu_);
  entries_.erase(handle);
  changed_.SignalAll();
}

}  // namespace normd
