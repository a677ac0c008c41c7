// One queue: a thread, an epoll set, and the connections that belong to it. A turn of the loop takes what the sockets
// have, what other threads have posted, and the timers that are due, then runs the callbacks of calls, and writes what
// each connection has to send: at the end, so that replies share a write, and before it when callbacks take long.
// In the path: at the bottom; everything of the transport but the accept loop runs on a loop.
// Ownership: shares its connections, which hold a pointer to it; outlives them and all calls.
// Threads: Post, Run and IsCurrent are safe from any thread; the rest is the loop's own, but for Start and Stop.
#ifndef NORMD_SERVER_RPC_TRANSPORT_NATIVE_EVENT_LOOP_H_
#define NORMD_SERVER_RPC_TRANSPORT_NATIVE_EVENT_LOOP_H_

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
#include "server/rpc/transport/native/timer_heap.h"
#include "server/rpc/transport/queue_load.h"

struct epoll_event;

namespace normd::rpc::native {

class Http2Connection;

class EventLoop {
 public:
  using Task = absl::AnyInvocable<void()>;

  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Starts the thread. Returns UNAVAILABLE if descriptors have run out.
  absl::Status Start();
  // Ends the thread. REQUIRES: the loop has no connections.
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
  // Runs the callbacks of a call that are due, and notes how long that took: the clock is looked at once for all of
  // them. Returns the same.
  template <typename Function>
  absl::Duration Call(Function callback) {
    const absl::Time began = SteadyNow();
    callback();
    const absl::Duration taken = SteadyNow() - began;
    load_.Note(taken);
    noted_ += taken;
    return taken;
  }
  // Notes how long the thread has been at work since the last NoteWork, callbacks left out. What a connection does is
  // noted when its turn ends, so that the longest turn shows, whether nghttp2, TLS or a callback takes it.
  void NoteWork() {
    const absl::Time ended = SteadyNow();
    load_.Note(ended - work_began_ - noted_);
    work_began_ = ended;
    noted_ = absl::ZeroDuration();
  }

  // Adds a connection, which then gets the events of `fd`, and removes it. A removed connection lives until the end of
  // the turn.
  bool Add(std::shared_ptr<Http2Connection> connection, int fd, uint32_t events);
  void Change(Http2Connection* connection, int fd, uint32_t events);
  void Remove(Http2Connection* connection, int fd);
  std::vector<std::shared_ptr<Http2Connection>> connections() const;
  // How many connections there are; from any thread.
  int size() const { return size_.load(std::memory_order_relaxed); }
  // Has the connection's callbacks run and its output written before the loop sleeps again.
  void Activate(std::shared_ptr<Http2Connection> connection) { active_.push_back(std::move(connection)); }

  TimerHeap& timers() { return timers_; }
  QueueLoad& load() { return load_; }
  // The time at which this turn began.
  absl::Time now() const { return now_; }
  // Memory for bytes that are read from any of the sockets; they are gone with the next read.
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
  QueueLoad load_;

  Mutex mu_;
  std::vector<Task> posted_ ABSL_GUARDED_BY(mu_);

  // Of the loop's thread.
  bool stopping_ = false;
  absl::Time now_ = SteadyNow();
  absl::Time work_began_ = now_;  // when work that was not noted yet began
  absl::Duration noted_;          // by callbacks since then
  TimerHeap timers_;
  std::vector<char> scratch_;
  std::unordered_map<Http2Connection*, std::shared_ptr<Http2Connection>> connections_;
  std::vector<std::shared_ptr<Http2Connection>> active_;
  std::vector<std::shared_ptr<Http2Connection>> removed_;  // events of this turn may still name them
};

}  // namespace normd::rpc::native

#endif  // NORMD_SERVER_RPC_TRANSPORT_NATIVE_EVENT_LOOP_H_
