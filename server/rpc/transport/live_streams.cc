#include "server/rpc/transport/live_streams.h"

#include <algorithm>
#include <cstdint>

#include "server/base/steady_time.h"
#include "server/rpc/transport/stream.h"

namespace normd::rpc {
namespace {

// A power of two below the size of a stream.
constexpr uintptr_t kBytesBetweenStreams = 512;

}  // namespace

// Streams that are made one after another lie next to each other, at multiples of their size.
LiveStreams::Presence::Presence(LiveStreams* live)
    : part_(&live->parts_[std::hash<uintptr_t>()(reinterpret_cast<uintptr_t>(this) / kBytesBetweenStreams) % kParts]) {
  MutexLock lock(part_->mu);
  ++part_->present;
}

LiveStreams::Presence::~Presence() {
  MutexLock lock(part_->mu);
  // Locked, because the waiter may destroy the LiveStreams once the lock is free.
  if (--part_->present == 0) part_->changed.SignalAll();
}

LiveStreams::Place LiveStreams::Presence::Add(Stream* stream) const {
  MutexLock lock(part_->mu);
  return part_->streams.insert(part_->streams.end(), stream);
}

void LiveStreams::Presence::Remove(Place place) const {
  MutexLock lock(part_->mu);
  part_->streams.erase(place);
}

void LiveStreams::CallOver() {
  if (calls_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  MutexLock lock(calls_mu_);
  no_calls_.SignalAll();
}

std::vector<std::shared_ptr<Stream>> LiveStreams::Collect(const std::function<bool(const Stream&)>& wanted) {
  std::vector<std::shared_ptr<Stream>> found;  // outlives the locks
  for (Part& part : parts_) {
    MutexLock lock(part.mu);
    for (Stream* const stream : part.streams) {
      if (!wanted(*stream)) continue;
      // lock() returns null for a stream that is being destroyed, whose destructor waits for this lock. The references
      // in `found` are dropped only after the locks are free.
      if (std::shared_ptr<Stream> held = stream->weak_from_this().lock()) found.push_back(std::move(held));
    }
  }
  return found;
}

bool LiveStreams::WaitForNoCalls(absl::Duration limit) {
  const absl::Time end = SteadyNow() + limit;
  MutexLock lock(calls_mu_);
  while (calls() != 0) {
    const absl::Duration left = end - SteadyNow();
    if (left <= absl::ZeroDuration()) return false;
    no_calls_.WaitFor(calls_mu_, std::min(left, absl::Seconds(1)));
  }
  return true;
}

void LiveStreams::WaitForNone() {
  // A stream of one part may have made one in a part that was seen empty before.
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
