#include "server/rpc/transport/live_streams.h"

#include <algorithm>

#include "server/base/steady_time.h"
#include "server/rpc/transport/stream.h"

namespace normd::rpc {

LiveStreams::Place LiveStreams::Add(Stream* stream) {
  MutexLock lock(mu_);
  ++present_;
  return streams_.insert(streams_.end(), stream);
}

void LiveStreams::Remove(Place place) {
  MutexLock lock(mu_);
  streams_.erase(place);
}

void LiveStreams::Leave() {
  MutexLock lock(mu_);
  if (--present_ == 0) changed_.SignalAll();  // locked, because the waiter may destroy *this once the lock is free
}

void LiveStreams::CallOver() {
  if (calls_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  MutexLock lock(mu_);
  changed_.SignalAll();
}

std::vector<std::shared_ptr<Stream>> LiveStreams::Collect(const std::function<bool(const Stream&)>& wanted) {
  std::vector<std::shared_ptr<Stream>> found;  // outlives the lock
  MutexLock lock(mu_);
  for (Stream* const stream : streams_) {
    if (!wanted(*stream)) continue;
    // lock() returns null for a stream that is being destroyed, whose destructor waits for this lock. The references in
    // `found` are dropped only after the lock is free.
    if (std::shared_ptr<Stream> held = stream->weak_from_this().lock()) found.push_back(std::move(held));
  }
  return found;
}

bool LiveStreams::WaitForNoCalls(absl::Duration limit) {
  const absl::Time end = SteadyNow() + limit;
  MutexLock lock(mu_);
  while (calls() != 0) {
    const absl::Duration left = end - SteadyNow();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(mu_, std::min(left, absl::Seconds(1)));
  }
  return true;
}

void LiveStreams::WaitForNone() {
  MutexLock lock(mu_);
  while (present_ != 0) changed_.Wait(mu_);
}

}  // namespace normd::rpc
