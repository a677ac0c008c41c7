#include "server/net/timer_heap.h"

namespace normd::net {

void TimerHeap::Set(Timer* timer, absl::Time at) {
  timer->at_ = at;
  if (!timer->is_set()) {
    heap_.push_back(timer);
    timer->place_ = heap_.size() - 1;
  }
  Sift(timer->place_);
}

void TimerHeap::Cancel(Timer* timer) {
  if (!timer->is_set()) return;
  const size_t place = std::exchange(timer->place_, Timer::kNowhere);
  Timer* const last = heap_.back();
  heap_.pop_back();
  if (last == timer) return;
  Put(last, place);
  Sift(place);
}

void TimerHeap::RunDue(absl::Time now) {
  while (!heap_.empty() && heap_.front()->at_ <= now) {
    Timer* const timer = heap_.front();
    Cancel(timer);
    timer->on_due_();
  }
}

void TimerHeap::Sift(size_t place) {
  Timer* const timer = heap_[place];
  for (; place > 0; place = (place - 1) / 2) {
    Timer* const parent = heap_[(place - 1) / 2];
    if (parent->at_ <= timer->at_) break;
    Put(parent, place);
  }
  for (size_t child = 2 * place + 1; child < heap_.size(); child = 2 * place + 1) {
    if (child + 1 < heap_.size() && heap_[child + 1]->at_ < heap_[child]->at_) ++child;
    if (timer->at_ <= heap_[child]->at_) break;
    Put(heap_[child], place);
    place = child;
  }
  Put(timer, place);
}

void TimerHeap::Put(Timer* timer, size_t place) {
  heap_[place] = timer;
  timer->place_ = place;
}

}  // namespace normd::net
