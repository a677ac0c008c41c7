#include "server/obs/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

namespace normd {
namespace {

// The fields of /proc/self/stat after the command, whose name may hold spaces. The first one is field 3 in proc(5).
std::istringstream StatAfterCommand() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  const size_t end = line.rfind(')');
  return std::istringstream(end == std::string::npos ? std::string() : line.substr(end + 1));
}

double BootTimeSeconds() {
  std::ifstream file("/proc/stat");
  std::string key;
  double value = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    if (fields >> key >> value && key == "btime") return value;
  }
  return 0;
}

struct ResidentPages {
  int64_t all = 0;
  int64_t shared = 0;  // pages of files and of shared memory
};

ResidentPages ReadResidentPages() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0;
  ResidentPages pages;
  return file >> size >> pages.all >> pages.shared ? pages : ResidentPages();
}

int64_t CountOpenFds() {
  std::error_code error;
  int64_t count = 0;
  std::filesystem::directory_iterator fds("/proc/self/fd", error);
  for (const std::filesystem::directory_iterator end; !error && fds != end; fds.increment(error)) ++count;
  return count > 0 ? count - 1 : 0;  // without the descriptor of the directory itself
}

}  // namespace

int64_t ReadResidentBytes() { return ReadResidentPages().all * sysconf(_SC_PAGESIZE); }

int64_t ReadPrivateBytes() {
  const ResidentPages pages = ReadResidentPages();
  return (pages.all - pages.shared) * sysconf(_SC_PAGESIZE);
}

ProcessStats ReadProcessStats() {
  ProcessStats stats;
  std::istringstream stat = StatAfterCommand();
  std::string field;
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  for (int number = 3; number <= 24 && stat >> field; ++number) {
    const double value = number == 3 ? 0 : std::atof(field.c_str());
    if (number == 14 || number == 15) stats.cpu_seconds += value / ticks;
    if (number == 20) stats.threads = static_cast<int64_t>(value);
    if (number == 22) stats.start_time_seconds = BootTimeSeconds() + value / ticks;
    if (number == 24) stats.resident_bytes = static_cast<int64_t>(value) * sysconf(_SC_PAGESIZE);
  }
  stats.open_fds = CountOpenFds();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) stats.max_fds = static_cast<int64_t>(limit.rlim_cur);
  return stats;
}

}  // namespace normd
