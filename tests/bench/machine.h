// What a figure depends on besides the code: the clock, the machine and what else runs on it.
// Reads /proc; Linux only. Threads: one.
#ifndef NORMD_TESTS_BENCH_MACHINE_H_
#define NORMD_TESTS_BENCH_MACHINE_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace normd::bench {

// "Intel(R) Xeon(R) Processor, 2 cores, 7.7 GiB"
std::string MachineText();

// A time whose differences alone mean anything: nobody sets this clock.
absl::Time SteadyNow();

// Cores that were busy with others, whatever they did, from construction to Read: all busy time of the machine without
// that of this process and the children it has waited for.
class BackgroundCpu {
 public:
  BackgroundCpu();
  double Read() const;

 private:
  const double busy_seconds_, own_seconds_;
  const absl::Time begin_;
};

// The number in the line of /proc/PID/status that begins with `name`, in bytes; 0 where there is none.
int64_t MemoryOf(int pid, const std::string& name);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_MACHINE_H_
