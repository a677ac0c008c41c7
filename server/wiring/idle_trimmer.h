// Returns unused memory to the system once the server is quiet. While the server is busy, malloc keeps freed memory for
// the next large request (see TuneAllocator); without the trimmer, a burst's memory would never reach other processes.
// In the path: beside it; server.cc makes one PeriodicTrimmer.
// Threads: Look is called by one thread at a time; PeriodicTrimmer has a thread of its own.
#ifndef NORMD_SERVER_WIRING_IDLE_TRIMMER_H_
#define NORMD_SERVER_WIRING_IDLE_TRIMMER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "server/base/periodic_thread.h"

namespace normd {

// What the trimmer measures and does. The functions are called on the thread that calls Look.
struct TrimmerHooks {
  std::function<int64_t()> in_flight_bytes;  // of requests that are not yet answered
  std::function<int64_t()> moved_bytes;      // of all requests and replies so far
  std::function<int64_t()> unused_bytes;     // resident, but in no allocated block: memory that a trim may give back
  std::function<void()> trim;
};

class IdleTrimmer {
 public:
  explicit IdleTrimmer(TrimmerHooks hooks);

  // Call this at even intervals. Trims after kQuietLooks calls in a row during which hardly any bytes moved, provided
  // that unused memory has grown since the last trim; so a quiet server is trimmed once, whatever the trim achieved.
  void Look();

  // Five intervals, because a trim walks the heap with the heap's locks held, and the memory of a caller that comes
  // every few seconds would otherwise go back and forth each time.
  static constexpr int kQuietLooks = 5;
  // Health checks and small calls stay below this limit, so they do not make the server keep a burst's memory.
  static constexpr int64_t kQuietBytes = 1 << 20;
  // Giving back less than this is not worth the page faults of the next request.
  static constexpr int64_t kLeastGrowthBytes = 32 << 20;

 private:
  const TrimmerHooks hooks_;
  int64_t moved_bytes_ = 0;  // hooks_.moved_bytes() at the last Look
  int64_t floor_bytes_ = 0;  // the smallest unused_bytes() seen since the last trim
  int quiet_looks_ = 0;
};

// A thread that calls Look every `interval` until it is destroyed.
class PeriodicTrimmer {
 public:
  PeriodicTrimmer(TrimmerHooks hooks, absl::Duration interval);

 private:
  IdleTrimmer trimmer_;  // used by `thread_` only
  PeriodicThread thread_;
};

}  // namespace normd

#endif  // NORMD_SERVER_WIRING_IDLE_TRIMMER_H_
