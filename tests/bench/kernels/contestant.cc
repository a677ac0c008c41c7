#include "tests/bench/kernels/contestant.h"

#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace normd::bench {

int64_t PageFaults() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

double WaitedForCoreSeconds(int pid) {
  double nanoseconds = 0;
  std::error_code error;  // threads come and go
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", error)) {
    std::ifstream file(task.path() / "schedstat");  // time on a core, time waiting for one, slices
    double ran = 0;
    double waited = 0;
    file >> ran >> waited;
    nanoseconds += waited;
  }
  return nanoseconds * 1e-9;
}

}  // namespace normd::bench
