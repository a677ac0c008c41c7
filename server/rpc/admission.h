// What may come in: the limits that gRPC is told, and the budget of request bytes held at one time.
// In the path: before a message is decoded; the reservation then lives as long as the decoded message does.
// Threads: safe from any thread, without a lock.
#ifndef NORMD_SERVER_RPC_ADMISSION_H_
#define NORMD_SERVER_RPC_ADMISSION_H_

#include <grpcpp/server_builder.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/rpc/grpc_server.h"

namespace normd::rpc {

// INVALID_ARGUMENT naming the option that is out of range.
absl::Status CheckOptions(const GrpcServerOptions& options);

// Message, metadata and stream limits, keepalive, no compression, no sharing of a port with another process.
void SetTransportLimits(const GrpcServerOptions& options, grpc::ServerBuilder& builder);

class Admission;

// Bytes held; given back on destruction. The admission must outlive it.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept {
    std::swap(admission_, other.admission_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Reservation();

  // Takes over what `other` holds of the same admission.
  void Add(Reservation other) {
    admission_ = std::exchange(other.admission_, nullptr);
    bytes_ += std::exchange(other.bytes_, 0);
  }

 private:
  friend class Admission;
  Reservation(Admission* admission, int64_t bytes) : admission_(admission), bytes_(bytes) {}

  Admission* admission_ = nullptr;
  int64_t bytes_ = 0;
};

class Admission {
 public:
  // `on_change`, if any, gets the bytes held after every change.
  Admission(int64_t max_in_flight_bytes, std::function<void(int64_t)> on_change)
      : max_bytes_(max_in_flight_bytes), on_change_(std::move(on_change)) {}

  // At headers: RESOURCE_EXHAUSTED when nothing more fits, so that a message is not even read.
  absl::Status CheckOpen() const;

  // RESOURCE_EXHAUSTED when `bytes` more do not fit.
  absl::StatusOr<Reservation> Reserve(int64_t bytes);

  int64_t held_bytes() const { return held_bytes_.load(std::memory_order_relaxed); }

 private:
  friend class Reservation;
  void Release(int64_t bytes);

  const int64_t max_bytes_;
  const std::function<void(int64_t)> on_change_;
  std::atomic<int64_t> held_bytes_{0};
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_ADMISSION_H_
