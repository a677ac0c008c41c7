#include "server/session/durable/change_queue.h"

#include <utility>

#include "server/base/errors.h"

namespace normd {

void ChangeQueue::Add(Change change, int64_t bytes) {
  {
    MutexLock lock(mu_);
    change.status = CheckRoom(bytes);
    if (change.status.ok()) {
      bytes_ += bytes;
      queued_.push_back({std::move(change), bytes});
      if (queued_.size() == wake_at_) changed_.Signal();
      return;
    }
  }
  change.Answer();
}

absl::Status ChangeQueue::CheckRoom(int64_t bytes) const {
  const auto queued = static_cast<int64_t>(queued_.size());
  if (failed_) return StoreFailedError();
  if (queued >= max_changes_) return NoRoomError("queued changes", queued + 1, max_changes_);
  if (queued > 0 && bytes_ + bytes > max_bytes_) {
    return NoRoomError("bytes of queued changes", bytes_ + bytes, max_bytes_);
  }
  return absl::OkStatus();
}

WaitStats ChangeQueue::waiting(absl::Time now) const {
  MutexLock lock(mu_);
  WaitStats stats = {.waiting = static_cast<int64_t>(queued_.size())};
  // Changes that are tried again stand in front.
  if (!queued_.empty()) stats.oldest = now - queued_.front().change.since;
  return stats;
}

void ChangeQueue::Wake() {
  // The lock, so that a writer that has found nothing new waits already when the signal comes.
  { MutexLock lock(mu_); }
  changed_.Signal();
}

void ChangeQueue::Stop() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  changed_.SignalAll();
}

bool ChangeQueue::AwaitFirst(absl::Duration timeout) {
  MutexLock lock(mu_);
  if (queued_.empty() && !stopping_ && timeout > absl::ZeroDuration()) changed_.WaitFor(mu_, timeout);
  return !queued_.empty() || !stopping_;
}

void ChangeQueue::AwaitMany(size_t wake_at, absl::FunctionRef<bool(const Change* first, size_t queued)> enough) {
  MutexLock lock(mu_);
  wake_at_ = wake_at;
  while (!enough(queued_.empty() ? nullptr : &queued_.front().change, queued_.size())) changed_.Wait(mu_);
  wake_at_ = 1;
}

void ChangeQueue::Pause(absl::Duration pause) {
  MutexLock lock(mu_);
  if (!stopping_) changed_.WaitFor(mu_, pause);
}

int64_t ChangeQueue::Take(Room room, absl::FunctionRef<bool(const Change& next)> may_join,
                          std::vector<Change>* changes) {
  int64_t taken = 0;
  MutexLock lock(mu_);
  while (!queued_.empty() && room.changes > 0 && taken < room.bytes && may_join(queued_.front().change)) {
    --room.changes;
    taken += queued_.front().bytes;
    bytes_ -= queued_.front().bytes;
    changes->push_back(std::move(queued_.front().change));
    queued_.pop_front();
  }
  return taken;
}

bool ChangeQueue::PutBack(std::vector<Change> changes) {
  MutexLock lock(mu_);
  const bool alone = queued_.empty();
  for (auto change = changes.rbegin(); change != changes.rend(); ++change) queued_.push_front({std::move(*change), 0});
  return alone;
}

bool ChangeQueue::Fail() {
  MutexLock lock(mu_);
  return !std::exchange(failed_, true);
}

bool ChangeQueue::failed() const {
  MutexLock lock(mu_);
  return failed_;
}

}  // namespace normd
