// Measures what the server spends between two moments: CPU time of all threads but the caller's, who is the peer, what
// they allocate, and the header fields that nghttp2 decodes for them.
// Threads: thread-compatible, and one at a time in a process.
#ifndef NORMD_TESTS_AMPLIFICATION_COST_METER_H_
#define NORMD_TESTS_AMPLIFICATION_COST_METER_H_

#include <cstdint>

#include "tests/amplification/bounds.h"

namespace normd {

class CostMeter {
 public:
  // Begins to measure.
  CostMeter();
  // What was spent since. REQUIRES: called by the same thread.
  Cost Read() const;

 private:
  int64_t cpu_ns_;
  int64_t allocated_bytes_;
  int64_t live_bytes_;
  int64_t shown_bytes_;
};

}  // namespace normd

#endif  // NORMD_TESTS_AMPLIFICATION_COST_METER_H_
