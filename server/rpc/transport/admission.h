// What may come in: the budget of bytes held at one time, by all and by one caller.
// In the path: at a call's headers, before its message is read; the reservation then lives as long as the call.
// Threads: safe from any thread; without a lock but for large calls.
#ifndef NORMD_SERVER_RPC_TRANSPORT_ADMISSION_H_
#define NORMD_SERVER_RPC_TRANSPORT_ADMISSION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"
#include "server/rpc/transport/server_options.h"

namespace normd::rpc {

// INVALID_ARGUMENT naming the option that is out of range.
absl::Status CheckOptions(const GrpcServerOptions& options);

// A tensor comes and one like it goes back: what a message of tensors takes.
inline constexpr int64_t kBytesHeldPerMessageByte = 2;

// The largest message, its reply, and a copy of its tensor in one piece: what must fit for every message to be served.
inline constexpr int64_t kMostBytesHeldPerMessageByte = 3;

// The option, or what suits the largest message.
int ConcurrentStreams(const GrpcServerOptions& options);

// What one caller may hold: the option, or 15/16 of what all may; the largest message fits in any case.
int64_t MaxCallerBytes(const GrpcServerOptions& options);

// The largest tensor that can travel in chunks: the option, or what a caller may hold of one and its reply.
int64_t MaxTensorBytes(const GrpcServerOptions& options);

class Admission;

// What one caller holds: a connection over TCP.
class CallerShare;

// Bytes held; given back on destruction. The admission must outlive it.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept {
    std::swap(admission_, other.admission_);
    std::swap(caller_, other.caller_);
    std::swap(bytes_, other.bytes_);
    std::swap(caller_bytes_, other.caller_bytes_);
    return *this;
  }
  ~Reservation();

  // Holds `bytes` instead, for example once it is known how many they are. RESOURCE_EXHAUSTED when they do not fit, for
  // the server or for the caller; what was held stays held. `caller` is asked only where it counts.
  absl::Status Resize(int64_t bytes, absl::FunctionRef<std::string()> caller);

  int64_t bytes() const { return bytes_; }

 private:
  friend class Admission;
  explicit Reservation(Admission* admission) : admission_(admission) {}

  Admission* admission_ = nullptr;
  std::shared_ptr<CallerShare> caller_;  // null: always too small to count
  int64_t bytes_ = 0;
  int64_t caller_bytes_ = 0;  // those of them that count for the caller
};

struct AdmissionLimits {
  int64_t max_bytes = 0;         // of all callers
  int64_t max_caller_bytes = 0;  // of one, as far as its calls are large enough to count
};

class Admission {
 public:
  // `on_change`, if any, gets the bytes held after every change.
  Admission(const AdmissionLimits& limits, std::function<void(int64_t)> on_change);
  ~Admission();

  // A reservation of `bytes`: see Resize.
  absl::StatusOr<Reservation> Reserve(int64_t bytes, absl::FunctionRef<std::string()> caller);

  int64_t held_bytes() const { return held_bytes_.load(std::memory_order_relaxed); }
  const AdmissionLimits& limits() const { return limits_; }

  // Smaller calls are bounded by the streams of a connection, and not worth looking a caller up.
  static constexpr int64_t kCountedBytes = 256 << 10;

  // Calls that hold no more than this have a sixteenth of the budget beyond it, which large ones cannot take.
  static constexpr int64_t kSmallBytes = 128 << 10;

  // Runs when bytes have been given back. Set once, before there are calls; must not block.
  void SetOnRelease(std::function<void()> on_release) { on_release_ = std::move(on_release); }

 private:
  friend class Reservation;
  friend class CallerShare;

  // Holds `bytes` more, which may be less than nothing, for a call that holds `total_bytes` in all.
  absl::Status Take(int64_t bytes, int64_t total_bytes);
  std::shared_ptr<CallerShare> ShareOf(std::string caller);

  const AdmissionLimits limits_;
  const std::function<void(int64_t)> on_change_;
  std::function<void()> on_release_;
  std::atomic<int64_t> held_bytes_{0};
  Mutex mu_;
  std::unordered_map<std::string, std::weak_ptr<CallerShare>> callers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_ADMISSION_H_
