#include "tests/bench/machine.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <thread>
#include <vector>

#include "absl/time/clock.h"

namespace normd::bench {

namespace {

// The value of the first line of `path` that begins with `name`, without the colon; empty: there is none.
std::string ValueIn(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(name) || colon == std::string::npos) continue;
    const size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? "" : line.substr(value);
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
  double seconds = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage = {};
    getrusage(who, &usage);
    for (const timeval& time : {usage.ru_utime, usage.ru_stime}) {
      seconds += static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    }
  }
  return seconds;
}

double WallSeconds() { return absl::ToDoubleSeconds(SteadyNow() - absl::UnixEpoch()); }

}  // namespace

std::string MachineText() {
  const double memory_kib = std::atof(ValueIn("/proc/meminfo", "MemTotal").c_str());
  return ValueIn("/proc/cpuinfo", "model name") + ", " + std::to_string(std::thread::hardware_concurrency()) +
         " cores, " + Fixed(memory_kib / (1 << 20), 1) + " GiB";
}

absl::Time SteadyNow() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::TimeFromTimespec(now);
}

std::string DateText() { return absl::FormatTime("%Y-%m-%d %H:%M UTC", absl::Now(), absl::UTCTimeZone()); }

BackgroundCpu::BackgroundCpu()
    : busy_seconds_(BusySeconds()), own_seconds_(OwnSeconds()), wall_seconds_(WallSeconds()) {}

double BackgroundCpu::Read() const {
  const double foreign = BusySeconds() - busy_seconds_ - (OwnSeconds() - own_seconds_);
  return foreign / (WallSeconds() - wall_seconds_);
}

void NoteForeignCpu(std::string_view when, absl::Duration watch, Report* report) {
  const BackgroundCpu foreign;
  absl::SleepFor(watch);
  report->Note("cores busy with others " + std::string(when), Fixed(foreign.Read(), 2));
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

std::string FileSystemName(const std::string& folder) {
  struct statfs info = {};
  if (statfs(folder.c_str(), &info) != 0) return "unknown";
  switch (static_cast<uint64_t>(info.f_type)) {  // man 2 statfs
    case 0xef53:
      return "ext4";
    case 0x58465342:
      return "xfs";
    case 0x9123683e:
      return "btrfs";
    case 0x01021994:
      return "tmpfs";
    case 0x794c7630:
      return "overlay";
    default:
      break;
  }
  char text[32];
  std::snprintf(text, sizeof(text), "type 0x%lx", static_cast<unsigned long>(info.f_type));
  return text;
}

absl::Duration FlushTime(const std::string& folder) {
  const std::string path = folder + "/flush";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const std::vector<char> page(4096, 'x');
  std::vector<double> seconds = {0};
  for (int i = 0; i < 50; ++i) {
    const absl::Time start = SteadyNow();
    if (write(file, page.data(), page.size()) < 0 || fdatasync(file) != 0) break;
    seconds.push_back(absl::ToDoubleSeconds(SteadyNow() - start));
  }
  close(file);
  unlink(path.c_str());
  return absl::Seconds(Median(seconds));
}

}  // namespace normd::bench
