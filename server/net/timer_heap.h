// The timers of one loop: deadlines of calls, and the periodic checks of connections.
// In the path: beside it; the loop runs the timers that are due.
// Ownership: a timer is a member of the object that it wakes, and must be cancelled before it is destroyed.
// Threads: the loop's thread only.
#ifndef NORMD_SERVER_NET_TIMER_HEAP_H_
#define NORMD_SERVER_NET_TIMER_HEAP_H_

#include <cstddef>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace normd::net {

class Timer {
 public:
  // `on_due` runs on the loop's thread, at most once for each Set.
  explicit Timer(std::function<void()> on_due) : on_due_(std::move(on_due)) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  bool is_set() const { return place_ != kNowhere; }

 private:
  friend class TimerHeap;
  static constexpr size_t kNowhere = std::numeric_limits<size_t>::max();

  const std::function<void()> on_due_;
  absl::Time at_;
  size_t place_ = kNowhere;  // in the heap
};

// A binary heap in which each timer knows its place, so that most deadlines, which are cancelled long before they
// pass, cost no allocation and leave nothing behind.
class TimerHeap {
 public:
  // Sets the timer, or moves it.
  void Set(Timer* timer, absl::Time at);
  // No effect on a timer that is not set.
  void Cancel(Timer* timer);
  // When the first timer is due; InfiniteFuture if none is set.
  absl::Time next() const { return heap_.empty() ? absl::InfiniteFuture() : heap_.front()->at_; }
  // Runs the timers that are due at `now`, which may set and cancel others.
  void RunDue(absl::Time now);

 private:
  // Moves the timer at `place` to where it belongs.
  void Sift(size_t place);
  void Put(Timer* timer, size_t place);

  std::vector<Timer*> heap_;
};

}  // namespace normd::net

#endif  // NORMD_SERVER_NET_TIMER_HEAP_H_
