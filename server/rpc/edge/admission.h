// Admission of calls: the budget of bytes reserved at one time, by all callers together, by each connection and by each
// tenant.
// In the path: at a call's headers, before its message is read; the reservation then lives as long as the call.
// Threads: everything is safe from any thread. Only large calls take a lock.
#ifndef NORMD_SERVER_RPC_EDGE_ADMISSION_H_
#define NORMD_SERVER_RPC_EDGE_ADMISSION_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"
#include "server/base/tenant_quotas.h"
#include "server/rpc/edge/rpc_options.h"

namespace normd::rpc {

class Admission;

// Who reserves bytes.
struct CallerName {
  std::string connection;  // the peer's name
  std::string tenant;
};

// The bytes that one connection, or one tenant, has reserved.
class CallerShare;

// Reserved bytes, released on destruction. The Admission must outlive its reservations.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept {
    std::swap(admission_, other.admission_);
    std::swap(caller_, other.caller_);
    std::swap(tenant_, other.tenant_);
    std::swap(bytes_, other.bytes_);
    std::swap(caller_bytes_, other.caller_bytes_);
    std::swap(can_wait_, other.can_wait_);
    return *this;
  }
  ~Reservation();

  // Changes the reservation to `bytes`, for example once the size of a message is known. Returns RESOURCE_EXHAUSTED
  // when they do not fit the budget of the server, of the connection or of the tenant, and then keeps the reservation
  // as it was. `caller` returns the caller's name and runs only for calls of kCountedBytes or more.
  absl::Status Resize(int64_t bytes, absl::FunctionRef<CallerName()> caller);

  int64_t bytes() const { return bytes_; }

 private:
  friend class Admission;
  explicit Reservation(Admission* admission) : admission_(admission) {}

  // Makes the caller's shares count `bytes` of this reservation.
  absl::Status ResizeShares(int64_t bytes);

  Admission* admission_ = nullptr;
  // Null while the call is too small to count against its caller.
  std::shared_ptr<CallerShare> caller_;
  std::shared_ptr<CallerShare> tenant_;
  int64_t bytes_ = 0;
  int64_t caller_bytes_ = 0;  // the part of `bytes_` that counts against the caller
  bool can_wait_ = false;     // see Admission::ReserveItem
};

struct AdmissionLimits {
  int64_t max_bytes = 0;         // of all callers together
  int64_t max_caller_bytes = 0;  // of one caller, over its calls that are large enough to count
};

class Admission {
 public:
  // `on_change`, if any, runs after every change with the bytes now reserved. `quotas`, if any, has the limits of
  // tenants, and must outlive the Admission.
  Admission(const AdmissionLimits& limits, std::function<void(int64_t)> on_change, TenantQuotaTable* quotas = nullptr);
  ~Admission();

  // Makes a reservation of `bytes`; arguments and errors are those of Resize.
  absl::StatusOr<Reservation> Reserve(int64_t bytes, absl::FunctionRef<CallerName()> caller);

  // As Reserve, for an item of a stream, which reserves kMinItemBytes at least. Items leave the part of the budget that
  // is kept for small calls to calls: a stream may hold many items, and its caller is used to wait.
  absl::StatusOr<Reservation> ReserveItem(int64_t bytes, absl::FunctionRef<CallerName()> caller);

  int64_t held_bytes() const { return held_bytes_.load(std::memory_order_relaxed); }
  const AdmissionLimits& limits() const { return limits_; }
  // The bytes that calls of kCountedBytes or more have reserved, by tenant; tenants without such calls are left out.
  std::map<std::string, int64_t> bytes_by_tenant() const;

  // Calls below this size do not count against their caller: the number of streams of a connection bounds them, and
  // they are not worth the look-up.
  static constexpr int64_t kCountedBytes = 256 << 10;

  // Calls that reserve at most this much may use a sixteenth of the budget on top of it, which large calls cannot take.
  static constexpr int64_t kSmallBytes = 128 << 10;

  // What an item of a stream or a batch takes beside its bytes until its reply is written: 3.7 KiB and 5 KB were
  // measured.
  static constexpr int64_t kMinItemBytes = 5 << 10;

  // `on_release` runs when bytes have been released, and must not block. Set it once, before the first call.
  void SetOnRelease(std::function<void()> on_release) { on_release_ = std::move(on_release); }

 private:
  friend class Reservation;
  friend class CallerShare;

  // Reserves `bytes` more, or releases bytes if negative, for a call that will have reserved `total_bytes` in all.
  absl::Status Take(int64_t bytes, int64_t total_bytes);
  // The share of the connection or the tenant whose key this is.
  std::shared_ptr<CallerShare> ShareOf(std::string key);

  const AdmissionLimits limits_;
  const std::function<void(int64_t)> on_change_;
  TenantQuotaTable* const quotas_;
  std::function<void()> on_release_;
  std::atomic<int64_t> held_bytes_{0};
  mutable Mutex mu_;
  std::unordered_map<std::string, std::weak_ptr<CallerShare>> callers_ ABSL_GUARDED_BY(mu_);  // by key
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_EDGE_ADMISSION_H_
