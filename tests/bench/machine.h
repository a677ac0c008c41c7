// What a figure depends on besides the code: the machine, what else runs on it, and the disk.
// Reads /proc; Linux only. Threads: one.
#ifndef NORMD_TESTS_BENCH_MACHINE_H_
#define NORMD_TESTS_BENCH_MACHINE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "tests/bench/report.h"

namespace normd::bench {

// "Intel(R) Xeon(R) Processor, 2 cores, 7.7 GiB"
std::string MachineText();
std::string DateText();

// A time that only differences have a meaning of: nobody sets this clock.
absl::Time SteadyNow();

// Cores that were busy with others, whatever they did, from construction to Read: all busy time of the machine without
// that of this process and the children it has waited for.
class BackgroundCpu {
 public:
  BackgroundCpu();
  double Read() const;

 private:
  const double busy_seconds_, own_seconds_, wall_seconds_;
};

// "cores busy with others before: 0.12", after watching for `watch`. `when`: "before", "after".
void NoteForeignCpu(std::string_view when, absl::Duration watch, Report* report);

// Resident memory of this process.
int64_t ResidentBytes();

// "ext4", "tmpfs", ...; a number in hex for one that has no name here.
std::string FileSystemName(const std::string& folder);

// The median time of writing 4 KiB at the end of a file in `folder` and fdatasync. Tens of microseconds or less: the
// disk does not wait for its medium, and "power" measures software alone.
absl::Duration FlushTime(const std::string& folder);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_MACHINE_H_
