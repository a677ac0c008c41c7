#include "tests/bench/machine.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <thread>

#include "absl/strings/str_format.h"
#include "kernels/base/strings.h"

namespace normd::bench {

namespace {

// The value of the first line of `path` that begins with `name`, without the colon; empty where there is none.
std::string ValueIn(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t value = line.find_first_not_of(" \t", line.find(':') + 1);
    if (line.starts_with(name) && value != std::string::npos) return line.substr(value);
  }
  return "";
}

// User, nice, system, irq, softirq and steal of all cores: what is not idle and not waiting for a disk.
double BusySeconds() {
  std::ifstream file("/proc/stat");
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft_irq = 0, steal = 0;
  file >> name >> user >> nice >> system >> idle >> wait >> irq >> soft_irq >> steal;
  return (user + nice + system + irq + soft_irq + steal) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double OwnSeconds() {
  absl::Duration used;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage = {};
    getrusage(who, &usage);
    used += absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime);
  }
  return absl::ToDoubleSeconds(used);
}

}  // namespace

std::string MachineText() {
  const double memory_kib = std::atof(ValueIn("/proc/meminfo", "MemTotal").c_str());
  return absl::StrFormat("%s, %d cores, %.1f GiB", ValueIn("/proc/cpuinfo", "model name"),
                         std::thread::hardware_concurrency(), memory_kib / (1 << 20));
}

absl::Time SteadyNow() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::TimeFromTimespec(now);
}

BackgroundCpu::BackgroundCpu() : busy_seconds_(BusySeconds()), own_seconds_(OwnSeconds()), begin_(SteadyNow()) {}

double BackgroundCpu::Read() const {
  const double foreign = BusySeconds() - busy_seconds_ - (OwnSeconds() - own_seconds_);
  return foreign / absl::ToDoubleSeconds(SteadyNow() - begin_);
}

int64_t MemoryOf(int pid, const std::string& name) {
  return std::atoll(ValueIn(Concat("/proc/", pid, "/status"), name).c_str()) * 1024;
}

}  // namespace normd::bench
