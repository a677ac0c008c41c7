// How busy a thread is with its work: callbacks of calls, turns of a loop.
// In the path: beside it; the thread notes each callback. Threads: Note is called by that thread alone; the rest is
// safe from any thread.
#ifndef NORMD_SERVER_NET_LOOP_LOAD_H_
#define NORMD_SERVER_NET_LOOP_LOAD_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace normd::net {

// In a cache line of its own.
class alignas(64) LoopLoad {
 public:
  struct Stats {
    absl::Duration longest_callback;  // since the last Take
    int64_t slow_callbacks = 0;       // of 5 ms or more, since the start
    absl::Duration busy;              // since the start
  };

  void BeginTurn(absl::Time now) { turn_began_ns_.store(absl::ToUnixNanos(now), std::memory_order_relaxed); }
  void EndTurn() { turn_began_ns_.store(0, std::memory_order_relaxed); }
  // How long the present turn has lasted; zero between turns.
  absl::Duration turn() const;
  // Whether the thread serves the work that waits for it: a turn takes milliseconds, so one that has lasted a second
  // may never end.
  bool serves() const { return turn() < absl::Seconds(1); }

  void Note(absl::Duration callback);
  Stats Take();

 private:
  std::atomic<int64_t> turn_began_ns_{0};  // 0: between turns
  std::atomic<int64_t> longest_callback_ns_{0};
  std::atomic<int64_t> slow_callbacks_{0};
  std::atomic<int64_t> busy_ns_{0};
};

}  // namespace normd::net

#endif  // NORMD_SERVER_NET_LOOP_LOAD_H_
