#include "server/rpc/edge/live_calls.h"

#include <algorithm>
#include <cstdint>

#include "server/base/steady_time.h"
#include "server/rpc/edge/rpc_call.h"

namespace normd::rpc {
namespace {

// A power of two below the size of a call.
constexpr uintptr_t kBytesBetweenCalls = 512;

}  // namespace

// Calls that are made one after another lie next to each other, at multiples of their size.
LiveCalls::Presence::Presence(LiveCalls* live)
    : part_(&live->parts_[std::hash<uintptr_t>()(reinterpret_cast<uintptr_t>(this) / kBytesBetweenCalls) % kParts]) {
  MutexLock lock(part_->mu);
  ++part_->present;
}

LiveCalls::Presence::~Presence() {
  MutexLock lock(part_->mu);
  // Locked, because the waiter may destroy the LiveCalls once the lock is free.
  if (--part_->present == 0) part_->changed.SignalAll();
}

LiveCalls::Place LiveCalls::Presence::Add(RpcCall* call) const {
  MutexLock lock(part_->mu);
  return part_->calls.insert(part_->calls.end(), call);
}

void LiveCalls::Presence::Remove(Place place) const {
  MutexLock lock(part_->mu);
  part_->calls.erase(place);
}

void LiveCalls::CallOver() {
  if (calls_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  MutexLock lock(calls_mu_);
  no_calls_.SignalAll();
}

std::vector<std::shared_ptr<RpcCall>> LiveCalls::Collect(const std::function<bool(const RpcCall&)>& wanted) {
  std::vector<std::shared_ptr<RpcCall>> found;  // outlives the locks
  for (Part& part : parts_) {
    MutexLock lock(part.mu);
    for (RpcCall* const call : part.calls) {
      if (!wanted(*call)) continue;
      // lock() returns null for a call that is being destroyed, whose destructor waits for this lock. The references
      // in `found` are dropped only after the locks are free.
      if (std::shared_ptr<RpcCall> held = call->weak_from_this().lock()) found.push_back(std::move(held));
    }
  }
  return found;
}

bool LiveCalls::WaitForNoCalls(absl::Duration limit) {
  const absl::Time end = SteadyNow() + limit;
  MutexLock lock(calls_mu_);
  while (calls() != 0) {
    const absl::Duration left = end - SteadyNow();
    if (left <= absl::ZeroDuration()) return false;
    no_calls_.WaitFor(calls_mu_, std::min(left, absl::Seconds(1)));
  }
  return true;
}

void LiveCalls::WaitForNone() {
  // A call of one part may have made one in a part that was seen empty before.
  bool waited = true;
  while (waited) {
    waited = false;
    for (Part& part : parts_) {
      MutexLock lock(part.mu);
      while (part.present != 0) {
        part.changed.Wait(part.mu);
        waited = true;
      }
    }
  }
}

}  // namespace normd::rpc
