// A thread, an epoll set, and the handlers that belong to it. A turn of the loop handles the descriptors that are
// ready, the tasks that other threads have posted, and the timers that are due. Then the activated handlers deliver,
// and at the end all of them flush, so that the output of several deliveries shares a write.
// In the path: at the bottom; connections of RPCs, the admin listener and the registrar of shared memory are handlers.
// Ownership: shares its handlers, which hold a pointer to it; outlives them.
// Threads: Post, Run, IsCurrent, size and load are safe from any thread. Open, Start and Stop are called by the thread
// that made the loop, which may call everything else before Start, too; Run posts then. Afterwards the rest is the
// loop's own.
#ifndef NORMD_SERVER_NET_EVENT_LOOP_H_
#define NORMD_SERVER_NET_EVENT_LOOP_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/base/mutex.h"
#include "server/base/steady_time.h"
#include "server/base/unique_fd.h"
#include "server/net/loop_load.h"
#include "server/net/timer_heap.h"

struct epoll_event;

namespace normd::net {

// What a loop serves: a connection, or a listener. All calls come on the loop's thread.
class Handler {
 public:
  virtual ~Handler() = default;

  // The descriptor is ready, as epoll's `events` say. After Remove there may be one more call in the same turn.
  virtual void OnEvents(uint32_t events) = 0;
  // Once for each Activate: first all activated handlers deliver their input, then all of them flush.
  virtual void Deliver() {}
  virtual void Flush() {}
};

class EventLoop {
 public:
  using Task = absl::AnyInvocable<void()>;

  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Makes the epoll set. Returns UNAVAILABLE if descriptors have run out.
  absl::Status Open();
  // Starts the thread. REQUIRES: Open succeeded.
  void Start();
  // Ends the thread, after all that was posted before. REQUIRES: the loop has no handlers by then. Idempotent.
  void Stop();

  // Runs `task` on the loop's thread, in the order of the posts.
  void Post(Task task);
  // Runs `task` at once on the loop's thread, and posts it on any other.
  template <typename Function>
  void Run(Function task) {
    if (IsCurrent()) {
      task();
    } else {
      Post(Task(std::move(task)));
    }
  }
  bool IsCurrent() const { return thread_id_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }
  // Runs `callback`, records how long it took, and returns that time.
  template <typename Function>
  absl::Duration Call(Function callback) {
    const absl::Time began = SteadyNow();
    callback();
    const absl::Duration taken = SteadyNow() - began;
    load_.Note(taken);
    noted_ += taken;
    return taken;
  }
  // Records how long the thread has worked since the last NoteWork, without callbacks. The work of a handler is
  // recorded when its turn ends, so that the longest turn shows, whatever its cause.
  void NoteWork() {
    const absl::Time ended = SteadyNow();
    load_.Note(ended - work_began_ - noted_);
    work_began_ = ended;
    noted_ = absl::ZeroDuration();
  }

  // Adds a handler, which then gets the events of `fd`; false if the system refuses.
  bool Add(std::shared_ptr<Handler> handler, int fd, uint32_t events);
  void Change(Handler* handler, int fd, uint32_t events);
  // Removes a handler, which lives until the end of the turn. `fd` is still open.
  void Remove(Handler* handler, int fd);
  std::vector<std::shared_ptr<Handler>> handlers() const;
  // The number of handlers.
  int size() const { return size_.load(std::memory_order_relaxed); }
  // Has the handler deliver and flush before the loop sleeps again.
  void Activate(std::shared_ptr<Handler> handler) { active_.push_back(std::move(handler)); }

  TimerHeap& timers() { return timers_; }
  LoopLoad& load() { return load_; }
  const LoopLoad& load() const { return load_; }
  // The time at which this turn began.
  absl::Time now() const { return now_; }
  // Memory for bytes that are read from any of the descriptors; they are gone with the next read.
  absl::Span<char> scratch() { return absl::MakeSpan(scratch_); }

 private:
  void Serve();
  void TakeEvents(absl::Span<const epoll_event> events);
  void RunPosted();
  void RunActive();
  int SleepMilliseconds() const;

  UniqueFd epoll_fd_;
  UniqueFd wake_fd_;
  std::thread thread_;
  std::atomic<std::thread::id> thread_id_{};
  std::atomic<int> size_{0};
  std::atomic<bool> woken_{false};  // whether wake_fd_ was written and not read yet
  LoopLoad load_;

  Mutex mu_;
  std::vector<Task> posted_ ABSL_GUARDED_BY(mu_);

  // Of the loop's thread.
  bool stopping_ = false;
  absl::Time now_ = SteadyNow();
  absl::Time work_began_ = now_;  // when work that was not noted yet began
  absl::Duration noted_;          // by callbacks since then
  TimerHeap timers_;
  std::vector<char> scratch_;
  std::unordered_map<Handler*, std::shared_ptr<Handler>> handlers_;
  std::vector<std::shared_ptr<Handler>> active_;
  std::vector<std::shared_ptr<Handler>> removed_;  // events of this turn may still name them
};

}  // namespace normd::net

#endif  // NORMD_SERVER_NET_EVENT_LOOP_H_
