#include "client/normload/background_cpu.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace normd::client {
namespace {

// Reads to the end, because files of /proc report no size.
std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<absl::string_view> Fields(absl::string_view line) {
  return absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
}

std::optional<int64_t> Number(absl::string_view text) {
  int64_t value;
  if (!absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

bool HoldsSocket(const std::filesystem::path& process, const std::string& link) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(process / "fd", error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (std::filesystem::read_symlink(it->path(), gone) == link) return true;
  }
  return false;
}

// The process that holds the socket. Finds only processes whose open files this user may list.
std::optional<int> FindHolder(int64_t inode) {
  const std::string link = absl::StrCat("socket:[", inode, "]");
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    int pid;
    if (absl::SimpleAtoi(it->path().filename().string(), &pid) && HoldsSocket(it->path(), link)) return pid;
  }
  return std::nullopt;
}

}  // namespace

std::optional<CpuTicks> ParseCpuTicks(absl::string_view proc_stat) {
  // cpu user nice system idle iowait irq softirq steal (guest times are in user and nice)
  const std::vector<absl::string_view> fields = Fields(proc_stat.substr(0, proc_stat.find('\n')));
  if (fields.size() < 9 || fields[0] != "cpu") return std::nullopt;
  CpuTicks out;
  for (size_t i = 1; i < 9; ++i) {
    const std::optional<int64_t> ticks = Number(fields[i]);
    if (!ticks.has_value()) return std::nullopt;
    out.total += *ticks;
    if (i <= 3 || i == 8) out.busy += *ticks;
  }
  return out;
}

std::optional<int64_t> ParseProcessTicks(absl::string_view proc_pid_stat) {
  const size_t name_end = proc_pid_stat.rfind(')');
  if (name_end == absl::string_view::npos) return std::nullopt;
  const std::vector<absl::string_view> fields = Fields(proc_pid_stat.substr(name_end + 1));
  if (fields.size() < 13) return std::nullopt;
  const std::optional<int64_t> user = Number(fields[11]), system = Number(fields[12]);
  if (!user.has_value() || !system.has_value()) return std::nullopt;
  return *user + *system;
}

std::optional<int64_t> ParseTcpListener(absl::string_view proc_net_tcp, int port) {
  constexpr absl::string_view kListening = "0A";
  const std::string ending = absl::StrCat(":", absl::Hex(port, absl::kZeroPad4));
  for (absl::string_view line : absl::StrSplit(proc_net_tcp, '\n')) {
    const std::vector<absl::string_view> fields = Fields(line);
    if (fields.size() < 10 || fields[3] != kListening) continue;
    if (absl::EndsWithIgnoreCase(fields[1], ending)) return Number(fields[9]);
  }
  return std::nullopt;
}

std::optional<int64_t> ParseUnixListener(absl::string_view proc_net_unix, absl::string_view path) {
  constexpr absl::string_view kAccepting = "00010000";
  for (absl::string_view line : absl::StrSplit(proc_net_unix, '\n')) {
    const std::vector<absl::string_view> fields = Fields(line);
    if (fields.size() == 8 && fields[3] == kAccepting && fields[7] == path) return Number(fields[6]);
  }
  return std::nullopt;
}

std::optional<double> ForeignShare(const CpuTicks& before, const CpuTicks& after) {
  const auto total = static_cast<double>(after.total - before.total);
  if (total <= 0) return std::nullopt;
  const auto background = static_cast<double>((after.busy - before.busy) - (after.ours - before.ours));
  return std::clamp(background / total, 0.0, 1.0);  // the files are not read in the same instant
}

std::optional<int> FindServerPid(const std::string& target) {
  std::optional<int64_t> inode;
  absl::string_view path = target;
  if (absl::ConsumePrefix(&path, "unix:")) {
    absl::ConsumePrefix(&path, "//");  // unix:///absolute
    inode = ParseUnixListener(ReadAll("/proc/net/unix"), path);
  } else {
    int port;
    if (!absl::SimpleAtoi(target.substr(target.rfind(':') + 1), &port)) return std::nullopt;
    inode = ParseTcpListener(ReadAll("/proc/net/tcp"), port);
    if (!inode.has_value()) inode = ParseTcpListener(ReadAll("/proc/net/tcp6"), port);
  }
  return inode.has_value() ? FindHolder(*inode) : std::nullopt;
}

std::optional<CpuTicks> BackgroundCpu::Now() const {
  std::optional<CpuTicks> out = ParseCpuTicks(ReadAll("/proc/stat"));
  const std::optional<int64_t> own = ParseProcessTicks(ReadAll("/proc/self/stat"));
  if (!out.has_value() || !own.has_value()) return std::nullopt;
  out->ours = *own;
  if (!server_pid_.has_value() || *server_pid_ == getpid()) return out;
  const std::optional<int64_t> server = ParseProcessTicks(ReadAll(absl::StrCat("/proc/", *server_pid_, "/stat")));
  if (!server.has_value()) return std::nullopt;  // the server has ended, so its time cannot be told apart
  out->ours += *server;
  return out;
}

std::optional<double> BackgroundCpu::Lap() {
  const std::optional<CpuTicks> now = Now();
  const std::optional<CpuTicks> before = std::exchange(last_, now);
  if (!now.has_value() || !before.has_value()) return std::nullopt;
  return ForeignShare(*before, *now);
}

}  // namespace normd::client
