#include "server/rpc/edge/read_limiter.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "server/base/steady_time.h"

namespace normd::rpc {

ReadLimiter::ReadLimiter(Admission* admission, const Patience& patience) : admission_(admission), patience_(patience) {
  admission_->SetOnRelease([this] {
    if (waiting_count_.load(std::memory_order_relaxed) > 0) Wake();
  });
}

bool ReadLimiter::Fits(int64_t bytes) const {
  return admission_->held_bytes() + reading_bytes_.load(std::memory_order_relaxed) + bytes <=
         admission_->limits().max_bytes;
}

void ReadLimiter::Push(Waiting call) {
  transport_bytes_ += call.transport_bytes;
  waiting_.push_back(std::move(call));
  waiting_count_.store(static_cast<int>(waiting_.size()), std::memory_order_relaxed);
}

void ReadLimiter::NoteRemoved(const Waiting& call) {
  transport_bytes_ -= call.transport_bytes;
  waiting_count_.store(static_cast<int>(waiting_.size()), std::memory_order_relaxed);
}

void ReadLimiter::Enter(const Connection& connection, int64_t bytes, Start start) {
  if (bytes <= Admission::kSmallBytes) return start(Ticket());
  {
    MutexLock lock(mu_);
    if (!open_ && connection.open_messages() > 0 && !(waiting_.empty() && Fits(bytes))) {
      Push({.bytes = bytes, .since = SteadyNow(), .until = absl::InfiniteFuture(), .start = std::move(start)});
      start = nullptr;
    } else {
      reading_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    }
  }
  if (start) return start(Ticket(this, bytes));
  Wake();  // bytes may have been released just before the call was queued
}

void ReadLimiter::EnterAnnounced(int64_t bytes, int64_t message_bytes, Start start) {
  if (bytes > Admission::kSmallBytes && patience_.longest > absl::ZeroDuration()) {
    MutexLock lock(mu_);
    const bool at_once = open_ || bytes > admission_->limits().max_bytes || (waiting_.empty() && Fits(bytes));
    const int64_t held = std::min(message_bytes, patience_.most_held_bytes);
    if (!at_once && transport_bytes_ + held <= patience_.max_message_bytes) {
      const absl::Time now = SteadyNow();
      Push({bytes, held, now, now + patience_.longest, std::move(start)});
      start = nullptr;
    }
  }
  if (start) return start(Ticket());
  Wake();  // bytes may have been released just before the call was queued
}

void ReadLimiter::Expire(absl::Time now) {
  if (waiting_count_.load(std::memory_order_relaxed) == 0) return;
  std::vector<Waiting> late;
  {
    MutexLock lock(mu_);
    const auto first = std::stable_partition(waiting_.begin(), waiting_.end(),
                                             [now](const Waiting& call) { return call.until > now; });
    late.assign(std::make_move_iterator(first), std::make_move_iterator(waiting_.end()));
    waiting_.erase(first, waiting_.end());
    for (const Waiting& call : late) NoteRemoved(call);
  }
  for (Waiting& call : late) call.start(Ticket());
  if (!late.empty()) Wake();  // the next call in the queue may be smaller and fit
}

void ReadLimiter::Leave(int64_t bytes) {
  reading_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  if (waiting_count_.load(std::memory_order_relaxed) > 0) Wake();
}

void ReadLimiter::Wake() {
  while (true) {
    Waiting next;
    {
      MutexLock lock(mu_);
      if (waiting_.empty() || !(open_ || Fits(waiting_.front().bytes))) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
      NoteRemoved(next);
      reading_bytes_.fetch_add(next.bytes, std::memory_order_relaxed);
    }
    next.start(Ticket(this, next.bytes));
  }
}

WaitStats ReadLimiter::wait_stats() const {
  MutexLock lock(mu_);
  if (waiting_.empty()) return {};
  return {.waiting = static_cast<int64_t>(waiting_.size()), .oldest = SteadyNow() - waiting_.front().since};
}

void ReadLimiter::Open() {
  {
    MutexLock lock(mu_);
    open_ = true;
  }
  Wake();
}

}  // namespace normd::rpc
