// CUDA memory of other processes, opened by IPC handle. Each handle is opened once in this process, however often it is
// registered, and closed when its last user goes. A registration may bring an event of its process; the event is opened
// with it and closed with its region.
// In the path: RegionTable makes regions of it; kernels on the device read and write there, and the engine starts a
// call when the events of its regions have completed. The addresses are the device's: host code must not follow them.
// Ownership: a CudaRegion keeps its memory open, and may outlive the CudaHandles.
// Threads: every method is safe from any thread. No lock is held while the opener runs.
#ifndef NORMD_SERVER_SHM_CUDA_MEMORY_H_
#define NORMD_SERVER_SHM_CUDA_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"

namespace normd {

inline constexpr size_t kCudaHandleBytes = 64;

struct CudaAllocation {
  std::byte* data = nullptr;  // on the device, as this process sees it
  int64_t size_bytes = 0;     // from `data` on
};

// Access to the CUDA driver, which this layer does not know. The functions that open and close run on whichever thread
// registers memory or releases the last range; each may take milliseconds.
struct CudaOpener {
  std::vector<int> devices;  // those that kernels run on; empty: there is no CUDA, and no function is called
  // Opens `handle`, which has kCudaHandleBytes, on one of `devices`. INVALID_ARGUMENT naming "cuda.ipc_handle" or
  // "cuda.device", or the driver's error; nothing stays open after an error.
  std::function<absl::StatusOr<CudaAllocation>(std::string_view handle, int device)> open;
  std::function<void(const CudaAllocation& allocation, int device)> close;
  // The same for an event, whose handle has kCudaHandleBytes, too. INVALID_ARGUMENT naming "cuda.event_handle", or the
  // driver's error.
  std::function<absl::StatusOr<void*>(std::string_view handle, int device)> open_event;
  std::function<void(void* event, int device)> close_event;
  // Whether the work before the event's latest record has completed; true for an event that was never recorded. Runs on
  // threads that serve calls, and must not wait for the device. Error: the driver's.
  std::function<absl::StatusOr<bool>(void* event, int device)> is_event_completed;
};

// A range of CUDA memory as a client registers it.
struct CudaRange {
  std::string_view handle;  // of the allocation
  int device = 0;
  uint64_t offset = 0;                 // into the allocation
  std::string_view event_handle = {};  // empty: no event
};

// An open event of another process, closed when the object is destroyed.
class CudaEvent {
 public:
  // Takes ownership of `event`, which the opener made for `device`.
  CudaEvent(std::shared_ptr<const CudaOpener> opener, void* event, int device)
      : opener_(std::move(opener)), event_(event), device_(device) {}
  ~CudaEvent() { opener_->close_event(event_, device_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  // As CudaOpener::is_event_completed.
  absl::StatusOr<bool> completed() const { return opener_->is_event_completed(event_, device_); }

 private:
  const std::shared_ptr<const CudaOpener> opener_;
  void* const event_;
  const int device_;
};

// A part of an open allocation, which it keeps open together with the event, if there is one.
class CudaRegion {
 public:
  std::byte* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }
  int device() const { return device_; }
  // What completes when the owner has written to the memory; null if the registration brought no event.
  const CudaEvent* event() const { return event_.get(); }

 private:
  friend class CudaHandles;
  CudaRegion() = default;

  std::shared_ptr<const CudaAllocation> opened_;
  std::shared_ptr<const CudaEvent> event_;
  std::byte* data_ = nullptr;
  int64_t size_bytes_ = 0;
  int device_ = 0;
};

class CudaHandles : public std::enable_shared_from_this<CudaHandles> {
 public:
  static std::shared_ptr<CudaHandles> Create(CudaOpener opener);

  // Checks what can be checked before anything is opened. FAILED_PRECONDITION (CudaNotAvailableError) without devices;
  // INVALID_ARGUMENT naming the field, and both lengths for a handle of the wrong length.
  absl::Status Check(const CudaRange& range) const;

  // Opens the handle, unless it is open, and the event. Nothing stays open for the range after an error. Errors are
  // those of Check and of the opener; INVALID_ARGUMENT naming "cuda.device" if the handle is open on another device,
  // "cuda.offset" or "size_bytes" if the range leaves the allocation. Waits while another thread opens or closes the
  // handle, because drivers may refuse to open a handle twice.
  absl::StatusOr<CudaRegion> Open(const CudaRange& range, int64_t size_bytes);

 private:
  struct Entry {
    int device = 0;
    bool ready = false;  // false while a thread opens or closes the handle
    int64_t users = 0;
    CudaAllocation allocation;
  };

  explicit CudaHandles(CudaOpener opener) : opener_(std::move(opener)) {}

  absl::StatusOr<std::shared_ptr<const CudaEvent>> OpenEvent(std::string_view handle, int device);
  absl::StatusOr<std::shared_ptr<const CudaAllocation>> Take(const std::string& handle, int device);
  // Counts one more user of an open handle. False: the handle is not open, and the caller must open it and call
  // EndOpening.
  absl::StatusOr<bool> TakeOpen(const std::string& handle, int device);
  void EndOpening(const std::string& handle, const absl::StatusOr<CudaAllocation>& opened);
  std::shared_ptr<const CudaAllocation> Pin(const std::string& handle);
  void Release(const std::string& handle);

  const CudaOpener opener_;

  mutable Mutex mu_;
  CondVar changed_;  // signalled when an entry becomes ready or goes
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace normd

#endif  // NORMD_SERVER_SHM_CUDA_MEMORY_H_
