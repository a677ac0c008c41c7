#include "server/rpc/transport/admission.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "server/base/error_reasons.h"
#include "server/base/errors.h"

namespace normd::rpc {
namespace {

constexpr int kMaxQueues = 64;

// The option of the server that sets the limits of bytes in flight, for messages.
constexpr std::string_view kBudgetOption = "--max_in_flight_bytes";

absl::Status CheckRange(std::string_view name, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return OutOfRangeError(name, absl::StrCat(value), absl::StrCat("between ", min, " and ", max),
                         ServerReason("OPTION_OUT_OF_RANGE"));
}

}  // namespace

absl::Status CheckOptions(const GrpcServerOptions& options) {
  constexpr int64_t kMaxInt = std::numeric_limits<int>::max();
  if (options.listeners.empty()) return MissingError("listeners", "at least one address");
  NORMD_RETURN_IF_ERROR(CheckRange("queues", options.queues, 0, kMaxQueues));
  NORMD_RETURN_IF_ERROR(CheckRange("max_message_bytes", options.max_message_bytes, 1024, kMaxInt));
  NORMD_RETURN_IF_ERROR(CheckRange("max_in_flight_bytes", options.max_in_flight_bytes,
                                   kMostBytesHeldPerMessageByte * options.max_message_bytes,
                                   std::numeric_limits<int64_t>::max() / 2));
  if (options.max_caller_bytes != 0) {
    NORMD_RETURN_IF_ERROR(CheckRange("max_caller_bytes", options.max_caller_bytes,
                                     kMostBytesHeldPerMessageByte * options.max_message_bytes,
                                     options.max_in_flight_bytes));
  }
  NORMD_RETURN_IF_ERROR(CheckRange("max_concurrent_streams", options.max_concurrent_streams, 0, kMaxInt));
  NORMD_RETURN_IF_ERROR(CheckRange("max_stream_calls", options.max_stream_calls, 1, 4096));
  NORMD_RETURN_IF_ERROR(CheckRange("max_metadata_bytes", options.max_metadata_bytes, 1024, kMaxInt));
  NORMD_RETURN_IF_ERROR(
      CheckRange("max_tensor_bytes", options.max_tensor_bytes, 1, std::numeric_limits<int64_t>::max() / 4));
  NORMD_RETURN_IF_ERROR(CheckRange("max_batch_items", options.max_batch_items, 1, kMaxInt));
  return CheckRange("export_chunk_bytes", options.export_chunk_bytes, 64 << 10, 1 << 20);
}

int ConcurrentStreams(const GrpcServerOptions& options) {
  if (options.max_concurrent_streams > 0) return options.max_concurrent_streams;
  return options.max_message_bytes > (4 << 20) ? 8 : 16;
}

int64_t MaxCallerBytes(const GrpcServerOptions& options) {
  if (options.max_caller_bytes > 0) return options.max_caller_bytes;
  return std::max(options.max_in_flight_bytes / 16 * 15, kMostBytesHeldPerMessageByte * options.max_message_bytes);
}

int64_t MaxTensorBytes(const GrpcServerOptions& options) {
  return std::min(options.max_tensor_bytes, MaxCallerBytes(options) / kBytesHeldPerMessageByte);
}

class CallerShare {
 public:
  CallerShare(Admission* admission, std::string caller) : admission_(admission), caller_(std::move(caller)) {}
  ~CallerShare() {
    MutexLock lock(admission_->mu_);
    const auto found = admission_->callers_.find(caller_);
    // Another share may have been made for the same caller meanwhile.
    if (found != admission_->callers_.end() && found->second.expired()) admission_->callers_.erase(found);
  }

  absl::Status Take(int64_t bytes) {
    const int64_t limit = admission_->limits_.max_caller_bytes;
    const int64_t held = held_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (bytes <= 0 || held <= limit) return absl::OkStatus();
    held_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    return NoRoomError("bytes_in_flight_of_caller", held, limit, {.option = kBudgetOption});
  }

 private:
  Admission* const admission_;
  const std::string caller_;
  std::atomic<int64_t> held_bytes_{0};
};

Reservation::~Reservation() {
  if (admission_ == nullptr) return;
  if (caller_ != nullptr) caller_->Take(-caller_bytes_).IgnoreError();
  admission_->Take(-bytes_, 0).IgnoreError();
}

absl::Status Reservation::Resize(int64_t bytes, absl::FunctionRef<std::string()> caller) {
  if (admission_ == nullptr) return absl::OkStatus();  // a default-constructed reservation counts nothing
  const AdmissionLimits& limits = admission_->limits_;
  if (bytes > limits.max_bytes) {  // never fits
    return LimitExceededError("bytes_in_flight", bytes, limits.max_bytes, {.option = kBudgetOption});
  }
  NORMD_RETURN_IF_ERROR(admission_->Take(bytes - bytes_, bytes));
  const int64_t before = std::exchange(bytes_, bytes);
  if (bytes < Admission::kCountedBytes && caller_ == nullptr) return absl::OkStatus();
  if (caller_ == nullptr) caller_ = admission_->ShareOf(caller());
  absl::Status share =
      bytes > limits.max_caller_bytes
          ? LimitExceededError("bytes_in_flight_of_caller", bytes, limits.max_caller_bytes, {.option = kBudgetOption})
          : caller_->Take(bytes - caller_bytes_);
  if (share.ok()) {
    caller_bytes_ = bytes;
  } else {
    admission_->Take(before - bytes, 0).IgnoreError();
    bytes_ = before;
  }
  return share;
}

Admission::Admission(const AdmissionLimits& limits, std::function<void(int64_t)> on_change)
    : limits_(limits), on_change_(std::move(on_change)) {}

Admission::~Admission() = default;

absl::StatusOr<Reservation> Admission::Reserve(int64_t bytes, absl::FunctionRef<std::string()> caller) {
  Reservation reservation(this);
  NORMD_RETURN_IF_ERROR(reservation.Resize(bytes, caller));
  return reservation;
}

// Releasing, which means taking a negative number of bytes, always succeeds.
absl::Status Admission::Take(int64_t bytes, int64_t total_bytes) {
  const int64_t held = held_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  const int64_t limit = total_bytes <= kSmallBytes ? limits_.max_bytes / 16 * 17 : limits_.max_bytes;
  if (bytes > 0 && held > limit) {
    held_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    return NoRoomError("bytes_in_flight", held, limit, {.option = kBudgetOption});
  }
  if (on_change_) on_change_(held);
  if (bytes < 0 && on_release_) on_release_();
  return absl::OkStatus();
}

std::shared_ptr<CallerShare> Admission::ShareOf(std::string caller) {
  MutexLock lock(mu_);
  std::weak_ptr<CallerShare>& known = callers_[caller];
  std::shared_ptr<CallerShare> share = known.lock();
  if (share == nullptr) {
    share = std::make_shared<CallerShare>(this, std::move(caller));
    known = share;
  }
  return share;
}

}  // namespace normd::rpc
