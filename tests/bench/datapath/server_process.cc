#include "tests/bench/datapath/server_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "tests/bench/machine.h"

namespace normd::bench {

namespace {

constexpr absl::Duration kStartLimit = absl::Seconds(20);

// Everything after the program's name in /proc/PID/stat, which may hold spaces: state is field 3, the first here.
std::vector<std::string> StatFields(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  std::istringstream rest(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::vector<std::string> fields;
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields;
}

// The child's standard output is `pipe`; its standard error is ours.
absl::StatusOr<pid_t> Spawn(const std::string& program, const std::string& kind, const std::string& listen, int pipe) {
  const std::string serve = "--serve=" + kind;
  const std::string address = "--listen=" + listen;
  std::string name = "bench_datapath";
  char* const arguments[] = {name.data(), const_cast<char*>(serve.c_str()), const_cast<char*>(address.c_str()),
                             nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe, STDOUT_FILENO);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return absl::InternalError(absl::StrCat("cannot start a server: ", std::strerror(error)));
  return pid;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerProcess>> ServerProcess::Start(const std::string& kind, const std::string& listen,
                                                                    const std::string& program) {
  int ends[2] = {};
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::InternalError("no pipe");
  const absl::StatusOr<pid_t> pid = Spawn(program, kind, listen, ends[1]);
  close(ends[1]);
  absl::Status status = pid.status();
  std::unique_ptr<ServerProcess> server;
  if (status.ok()) {
    server.reset(new ServerProcess(kind, *pid));
    status = server->WaitForAddress(ends[0]);
  }
  close(ends[0]);
  if (!status.ok()) return status;
  return server;
}

ServerProcess::~ServerProcess() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

absl::Status ServerProcess::WaitForAddress(int pipe) {
  const absl::Time limit = SteadyNow() + kStartLimit;
  std::string line;
  while (line.empty() || line.back() != '\n') {
    pollfd wait = {.fd = pipe, .events = POLLIN, .revents = 0};
    const absl::Duration left = limit - SteadyNow();
    char byte = 0;
    if (left <= absl::ZeroDuration() || poll(&wait, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) == 0) {
      return absl::UnavailableError(absl::StrCat("the server ", kind_, " does not start"));
    }
    if (read(pipe, &byte, 1) != 1) return absl::UnavailableError(absl::StrCat("the server ", kind_, " cannot start"));
    line.push_back(byte);
  }
  line.pop_back();
  address_ = line;
  return absl::OkStatus();
}

absl::Status ServerProcess::CheckAlive() const {
  siginfo_t info = {};
  // WNOWAIT: the process id stays ours until the destructor has waited.
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat("the server ", kind_, " has ended, ",
                                             info.si_code == CLD_EXITED ? "exit status " : "signal ", info.si_status));
}

absl::StatusOr<Usage> ServerProcess::ReadUsage() const {
  NORMD_RETURN_IF_ERROR(CheckAlive());
  // In nanoseconds, where /proc has ticks of 10 ms.
  clockid_t clock = 0;
  timespec used = {};
  if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &used) != 0) {
    return absl::InternalError("no CPU clock of another process");
  }
  constexpr size_t kMinorFaults = 7;  // man 5 proc: field 10 of all
  const std::vector<std::string> fields = StatFields(pid_);
  if (fields.size() <= kMinorFaults) return absl::InternalError("/proc/PID/stat cannot be read");
  return Usage{absl::DurationFromTimespec(used), std::atoll(fields[kMinorFaults].c_str())};
}

absl::StatusOr<int64_t> ServerProcess::PeakResidentBytes() const {
  NORMD_RETURN_IF_ERROR(CheckAlive());
  std::ifstream file(absl::StrCat("/proc/", pid_, "/status"));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) return std::atoll(line.c_str() + sizeof("VmHWM:")) * 1024;
  }
  return absl::InternalError("/proc/PID/status has no VmHWM");
}

absl::StatusOr<std::unique_ptr<ListenPlace>> ListenPlace::Make(const std::string& transport) {
  if (transport == "tcp") return std::unique_ptr<ListenPlace>(new ListenPlace(""));
  if (transport != "unix") return absl::InvalidArgumentError(absl::StrCat("no transport: ", transport));
  std::string folder = std::filesystem::temp_directory_path() / "normd-bench-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return absl::InternalError(absl::StrCat("cannot make ", folder));
  return std::unique_ptr<ListenPlace>(new ListenPlace(folder));
}

ListenPlace::~ListenPlace() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

std::string ListenPlace::Address(const std::string& name) const {
  return folder_.empty() ? "127.0.0.1:0" : absl::StrCat("unix:", folder_, "/", name, ".sock");
}

}  // namespace normd::bench
