#include "server/rpc/grpc/delivery_account.h"

#include <algorithm>

#include "server/rpc/edge/http2.h"

namespace normd::rpc {
namespace {

// Beside the message itself come a prefix of 5 bytes, 9 bytes per frame, metadata for each call, and with TLS at most
// 29 bytes per record (1.2 with GCM; 22 in 1.3). An honest peer must not run up a debt with them, so these constants
// are generous; Undelivered corrects the excess.
constexpr int64_t kCallOverheadBytes = 128;
constexpr int64_t kLeastFrameBytes = 4096;
constexpr int64_t kTlsRecordOverheadBytes = 29;
constexpr int64_t kFrameOverheadBytes = int64_t{http2::kFrameHeaderBytes} + kTlsRecordOverheadBytes;

// Bytes of an abandoned message may still arrive for this long after its call has ended here.
constexpr absl::Duration kTail = absl::Seconds(1);
// The least time between settlements, each of which costs a system call.
constexpr absl::Duration kSettleInterval = absl::Milliseconds(500);

}  // namespace

bool DeliveryAccount::End(bool complete, absl::Time now) {
  if (!complete) Lose(now);
  if (open_.fetch_sub(1, std::memory_order_relaxed) != 1) return false;
  return absl::ToUnixNanos(now) - settled_at_ns_.load(std::memory_order_relaxed) >=
         absl::ToInt64Nanoseconds(kSettleInterval);
}

void DeliveryAccount::Deliver(int64_t bytes) {
  const int64_t frames = 1 + bytes / kLeastFrameBytes;
  delivered_bytes_.fetch_add(bytes + kCallOverheadBytes + frames * kFrameOverheadBytes, std::memory_order_relaxed);
}

void DeliveryAccount::Settle(int64_t received_bytes, absl::Time now) {
  settled_at_ns_.store(absl::ToUnixNanos(now), std::memory_order_relaxed);
  MutexLock lock(mu_);
  surplus_ = likely_surplus_ = Surplus(received_bytes);
}

DeliveryAccount::Bounds DeliveryAccount::Undelivered(int64_t received_bytes, absl::Time now) {
  if (open() == 0) {
    Settle(received_bytes, now);
    return {};
  }
  const bool losing =
      absl::ToUnixNanos(now) - lost_at_ns_.load(std::memory_order_relaxed) < absl::ToInt64Nanoseconds(kTail);
  MutexLock lock(mu_);
  const int64_t surplus = Surplus(received_bytes);
  surplus_ = std::min(surplus_, surplus);
  // While messages are being lost, all received bytes count as abandoned, so that an honest peer is not blamed for
  // them.
  likely_surplus_ = losing ? surplus : std::min(likely_surplus_, surplus);
  return {.at_least = surplus - likely_surplus_, .at_most = surplus - surplus_};
}

}  // namespace normd::rpc
