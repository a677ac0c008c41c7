// Gives memory that nobody uses back to the system once the server is quiet. While it works malloc keeps what was freed
// (see TuneAllocator), because the next large request wants it; kept for ever it is a burst's memory that no other
// process gets.
// In the path: beside it; server.cc makes one. Threads: Look from one thread at a time; PeriodicTrimmer has one of its
// own.
#ifndef NORMD_SERVER_IDLE_TRIMMER_H_
#define NORMD_SERVER_IDLE_TRIMMER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "server/base/periodic_thread.h"

namespace normd {

// What the trimmer asks and does; safe from its thread.
struct TrimmerHooks {
  std::function<int64_t()> in_flight_bytes;  // of requests that are not yet answered
  std::function<int64_t()> moved_bytes;      // of requests and replies so far
  std::function<int64_t()> unused_bytes;     // resident, and in no block that somebody has: what a trim may give back
  std::function<void()> trim;
};

class IdleTrimmer {
 public:
  explicit IdleTrimmer(TrimmerHooks hooks);

  // To be called at even intervals. Trims after kQuietLooks looks in a row at which hardly anything moved, where more
  // is unused than the last trim left; so a quiet server is trimmed once, whatever that gave.
  void Look();

  // Five intervals: a trim walks the heap with its locks held, and callers who come every few seconds would have their
  // memory taken and given back each time.
  static constexpr int kQuietLooks = 5;
  // Health checks and small calls are no reason to keep what a burst has left.
  static constexpr int64_t kQuietBytes = 1 << 20;
  // Less is not worth the page faults of the next request.
  static constexpr int64_t kLeastGrowthBytes = 32 << 20;

 private:
  const TrimmerHooks hooks_;
  int64_t moved_bytes_ = 0;  // at the last look
  int64_t floor_bytes_ = 0;  // unused after the last trim, or the least since
  int quiet_looks_ = 0;
};

// A thread that calls Look every `interval` until it is destroyed.
class PeriodicTrimmer {
 public:
  PeriodicTrimmer(TrimmerHooks hooks, absl::Duration interval);

 private:
  IdleTrimmer trimmer_;  // of the thread
  PeriodicThread thread_;
};

}  // namespace normd

#endif  // NORMD_SERVER_IDLE_TRIMMER_H_
