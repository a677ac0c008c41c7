#include "server/rpc/edge/admission.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "server/base/error_reasons.h"
#include "server/base/errors.h"

namespace normd::rpc {
namespace {

// The option of the server that sets the limits of bytes in flight, for messages.
constexpr std::string_view kBudgetOption = "--max_in_flight_bytes";

// The keys of shares: a connection's is the name of its peer, which never begins like a tenant's.
constexpr std::string_view kTenantMark = "tenant/";
std::string KeyOfTenant(std::string_view tenant) { return absl::StrCat(std::string(kTenantMark), std::string(tenant)); }
// Nothing for a connection's key.
std::optional<std::string_view> TenantOfShare(std::string_view key) {
  if (!key.starts_with(kTenantMark)) return std::nullopt;
  return key.substr(kTenantMark.size());
}

}  // namespace

class CallerShare {
 public:
  CallerShare(Admission* admission, std::string key) : admission_(admission), key_(std::move(key)) {}
  ~CallerShare() {
    MutexLock lock(admission_->mu_);
    const auto found = admission_->callers_.find(key_);
    // Another share may have been made for the same caller meanwhile.
    if (found != admission_->callers_.end() && found->second.expired()) admission_->callers_.erase(found);
  }

  // Takes `bytes` more for a call that will have `total_bytes` in all. Giving back, which means taking a negative
  // number of bytes, always succeeds.
  absl::Status Take(int64_t bytes, int64_t total_bytes) {
    const int64_t held = held_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (bytes <= 0) return absl::OkStatus();
    absl::Status status = Judge(held, total_bytes);
    if (!status.ok()) held_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    return status;
  }

  int64_t held_bytes() const { return held_bytes_.load(std::memory_order_relaxed); }

 private:
  absl::Status Judge(int64_t held, int64_t total_bytes) const {
    if (const std::optional<std::string_view> tenant = TenantOfShare(key_); tenant.has_value()) {
      return admission_->quotas_->Check(*tenant, TenantQuota::kInFlightBytes, held, total_bytes);
    }
    const int64_t limit = admission_->limits_.max_caller_bytes;
    if (total_bytes > limit) {
      return LimitExceededError("bytes_in_flight_of_caller", total_bytes, limit, {.option = kBudgetOption});
    }
    if (held <= limit) return absl::OkStatus();
    return NoRoomError("bytes_in_flight_of_caller", held, limit, {.option = kBudgetOption});
  }

  Admission* const admission_;
  const std::string key_;
  std::atomic<int64_t> held_bytes_{0};
};

Reservation::~Reservation() {
  if (admission_ == nullptr) return;
  ResizeShares(0).IgnoreError();
  admission_->Take(-bytes_, 0).IgnoreError();
}

absl::Status Reservation::Resize(int64_t bytes, absl::FunctionRef<CallerName()> caller) {
  if (admission_ == nullptr) return absl::OkStatus();  // a default-constructed reservation counts nothing
  const AdmissionLimits& limits = admission_->limits_;
  if (bytes > limits.max_bytes) {  // never fits
    return LimitExceededError("bytes_in_flight", bytes, limits.max_bytes, {.option = kBudgetOption});
  }
  const int64_t counts_as = can_wait_ ? std::max(bytes, Admission::kSmallBytes + 1) : bytes;
  NORMD_RETURN_IF_ERROR(admission_->Take(bytes - bytes_, counts_as));
  const int64_t before = std::exchange(bytes_, bytes);
  if (bytes < Admission::kCountedBytes && caller_ == nullptr) return absl::OkStatus();
  if (caller_ == nullptr) {
    CallerName name = caller();
    if (admission_->quotas_ != nullptr) tenant_ = admission_->ShareOf(KeyOfTenant(name.tenant));
    caller_ = admission_->ShareOf(std::move(name.connection));
  }
  absl::Status share = ResizeShares(bytes);
  if (!share.ok()) {
    admission_->Take(before - bytes, 0).IgnoreError();
    bytes_ = before;
  }
  return share;
}

absl::Status Reservation::ResizeShares(int64_t bytes) {
  if (caller_ == nullptr) return absl::OkStatus();
  const int64_t more = bytes - caller_bytes_;
  NORMD_RETURN_IF_ERROR(caller_->Take(more, bytes));
  if (tenant_ != nullptr) {
    if (absl::Status status = tenant_->Take(more, bytes); !status.ok()) {
      caller_->Take(-more, 0).IgnoreError();
      return status;
    }
  }
  caller_bytes_ = bytes;
  return absl::OkStatus();
}

Admission::Admission(const AdmissionLimits& limits, std::function<void(int64_t)> on_change, TenantQuotaTable* quotas)
    : limits_(limits), on_change_(std::move(on_change)), quotas_(quotas) {}

Admission::~Admission() = default;

absl::StatusOr<Reservation> Admission::Reserve(int64_t bytes, absl::FunctionRef<CallerName()> caller) {
  Reservation reservation(this);
  NORMD_RETURN_IF_ERROR(reservation.Resize(bytes, caller));
  return reservation;
}

absl::StatusOr<Reservation> Admission::ReserveItem(int64_t bytes, absl::FunctionRef<CallerName()> caller) {
  Reservation reservation(this);
  reservation.can_wait_ = true;
  NORMD_RETURN_IF_ERROR(reservation.Resize(std::max(bytes, kMinItemBytes), caller));
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

std::shared_ptr<CallerShare> Admission::ShareOf(std::string key) {
  MutexLock lock(mu_);
  std::weak_ptr<CallerShare>& known = callers_[key];
  std::shared_ptr<CallerShare> share = known.lock();
  if (share == nullptr) {
    share = std::make_shared<CallerShare>(this, std::move(key));
    known = share;
  }
  return share;
}

std::map<std::string, int64_t> Admission::bytes_by_tenant() const {
  std::vector<std::shared_ptr<CallerShare>> shares;  // destroyed after the lock is released, which a share's end takes
  std::map<std::string, int64_t> bytes;
  MutexLock lock(mu_);
  for (const auto& [key, known] : callers_) {
    const std::optional<std::string_view> tenant = TenantOfShare(key);
    if (!tenant.has_value()) continue;
    shares.push_back(known.lock());
    if (shares.back() != nullptr) bytes.emplace(*tenant, shares.back()->held_bytes());
  }
  return bytes;
}

}  // namespace normd::rpc
