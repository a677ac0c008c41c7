#include "client/normload/run_info.h"

#include <sys/utsname.h>

#include <fstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/program.h"

namespace normd::client {
namespace {

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "model name")) return line.substr(line.find(": ") + 2);
  }
  return "unknown CPU";
}

}  // namespace

std::string CommandText(absl::string_view program, absl::Span<const std::string> arguments) {
  constexpr absl::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%[]";
  std::string out(program);
  for (const std::string& argument : arguments) {
    const bool is_plain =
        !argument.empty() && absl::string_view(argument).find_first_not_of(kPlain) == absl::string_view::npos;
    const std::string quoted = absl::StrCat("'", absl::StrReplaceAll(argument, {{"'", "'\\''"}}), "'");
    absl::StrAppend(&out, " ", is_plain ? argument : quoted);
  }
  return out;
}

RunInfo MakeRunInfo(const std::string& target, const v1::DescribeResponse& server, std::optional<int> server_pid) {
  utsname system = {};
  uname(&system);
  RunInfo out;
  out.date = absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone());
  out.machine = absl::StrCat(CpuModel(), ", ", std::thread::hardware_concurrency(), " CPUs, ", system.sysname, " ",
                             system.release, " ", system.machine);
  std::ifstream("/proc/loadavg") >> out.load_average;
  out.server = target;
  out.server_version = server.server_version();
  out.numerics = server.numerics();
  out.client_version = ClientVersion();
  out.commit = NORMD_COMMIT;
  out.server_pid = server_pid;
  return out;
}

}  // namespace normd::client
