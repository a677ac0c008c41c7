// Polls, on one thread, the CUDA events of other processes for which calls wait: such events do not notify anybody when
// they complete.
// In the path: before everything else that the engine does for a call but checking it, so that a call whose event never
// completes occupies no device, no turn at the concurrency limiter and no thread of its own.
// Interval: an eighth of the time that the call has waited, between kMinInterval and kMaxInterval. So polling makes a
// wait little longer, and many calls that wait for ever cost the thread little.
// Threads: safe from any thread. The functions of an entry run on the poller's thread, with no lock held, and must not
// block.
#ifndef NORMD_SERVER_ENGINE_EVENT_POLLER_H_
#define NORMD_SERVER_ENGINE_EVENT_POLLER_H_

#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"

namespace normd {

class EventPoller {
 public:
  static constexpr absl::Duration kMinInterval = absl::Microseconds(20);
  static constexpr absl::Duration kMaxInterval = absl::Milliseconds(10);

  struct Entry {
    absl::AnyInvocable<bool()> completed;  // called until it returns true
    absl::AnyInvocable<void()> start;      // called once, after that
  };

  EventPoller() = default;
  // REQUIRES: nothing waits.
  ~EventPoller();
  EventPoller(const EventPoller&) = delete;
  EventPoller& operator=(const EventPoller&) = delete;

  // Returns at once; the entry is polled from then on.
  void Wait(Entry entry);

 private:
  struct Waiting {
    Entry entry;
    absl::Time since;
  };

  void Run();
  // The entry that is to be polled next, once its time has come; nothing if the poller ends.
  bool TakeDue(Waiting* due);
  void Insert(Waiting waiting, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  CondVar changed_;
  std::multimap<absl::Time, Waiting> waiting_ ABSL_GUARDED_BY(mu_);  // by the time of their next poll
  bool ends_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mu_);  // started by the first Wait, because most servers have no such events
};

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_EVENT_POLLER_H_
