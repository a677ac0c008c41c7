#include "server/rpc/http2/waiting_bytes.h"

#include <algorithm>
#include <utility>

#include "server/base/errors.h"

namespace normd::rpc::http2 {
namespace {

// Shares that nobody has any more are swept away when there are this many, and then twice as many as are left.
constexpr size_t kSharesBeforeSweep = 64;

constexpr LimitNote kBudget = {.option = "--max_in_flight_bytes"};

}  // namespace

absl::Status WaitingBytes::Share::Add(int64_t bytes) {
  const int64_t own = bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  const int64_t all = total_->bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (bytes <= 0) return absl::OkStatus();
  if (own > total_->max_bytes / 2) return NoRoomError("waiting_bytes_of_peer", own, total_->max_bytes / 2, kBudget);
  return all > total_->max_bytes ? NoRoomError("waiting_bytes", all, total_->max_bytes, kBudget) : absl::OkStatus();
}

void WaitingBytes::Share::Release(int64_t bytes) {
  bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  total_->bytes.fetch_sub(bytes, std::memory_order_relaxed);
}

std::shared_ptr<WaitingBytes::Share> WaitingBytes::ShareOf(const std::string& address) {
  MutexLock lock(mu_);
  if (shares_.size() >= sweep_at_) {
    std::erase_if(shares_, [](const auto& share) { return share.second.expired(); });
    sweep_at_ = std::max(kSharesBeforeSweep, 2 * shares_.size());
  }
  std::weak_ptr<Share>& known = shares_[address];
  std::shared_ptr<Share> share = known.lock();
  if (share == nullptr) {
    share.reset(new Share(total_));
    known = share;
  }
  return share;
}

}  // namespace normd::rpc::http2
