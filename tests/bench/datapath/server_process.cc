#include "tests/bench/datapath/server_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "kernels/base/strings.h"

namespace normd::bench {

namespace {

// The child's standard output is `pipe`; its standard error is ours.
absl::StatusOr<pid_t> Spawn(const std::string& program, std::string serve, std::string listen, int pipe) {
  std::string name = "bench_server";
  char* const arguments[] = {name.data(), serve.data(), listen.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe, STDOUT_FILENO);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return absl::InternalError(Concat("cannot start ", program, ": ", std::strerror(error)));
  return pid;
}

}  // namespace

std::optional<ServeCommand> ParseServeCommand(int argc, char** argv) {
  constexpr std::string_view kServe = "--serve=", kListen = "--listen=";
  if (argc != 3 || !std::string_view(argv[1]).starts_with(kServe) || !std::string_view(argv[2]).starts_with(kListen)) {
    return std::nullopt;
  }
  return ServeCommand{argv[1] + kServe.size(), argv[2] + kListen.size()};
}

absl::StatusOr<std::unique_ptr<ServerProcess>> ServerProcess::Start(const std::string& kind,
                                                                    const std::string& transport,
                                                                    const std::string& program) {
  std::string folder;
  if (transport == "unix") {
    folder = std::filesystem::temp_directory_path() / "normd-bench-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) return absl::InternalError("cannot make " + folder);
  }
  std::unique_ptr<ServerProcess> server(new ServerProcess(folder));
  const std::string listen = folder.empty() ? "127.0.0.1:0" : Concat("unix:", folder, "/socket");
  int ends[2] = {};
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::InternalError("no pipe");
  const absl::StatusOr<pid_t> pid = Spawn(program, "--serve=" + kind, "--listen=" + listen, ends[1]);
  close(ends[1]);
  absl::Status status = pid.status();
  if (pid.ok()) {
    server->pid_ = *pid;
    status = server->ReadAddress(ends[0]);
  }
  close(ends[0]);
  if (!status.ok()) return absl::Status(status.code(), Concat(kind, ": ", std::string(status.message())));
  return server;
}

ServerProcess::~ServerProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

absl::Status ServerProcess::ReadAddress(int pipe) {
  for (char byte = 0; read(pipe, &byte, 1) == 1; address_.push_back(byte)) {
    if (byte == '\n') return absl::OkStatus();
  }
  return absl::UnavailableError("the server cannot start");
}

absl::StatusOr<absl::Duration> ServerProcess::CpuTime() const {
  // In nanoseconds, where /proc has ticks of 10 ms.
  clockid_t clock = 0;
  timespec used = {};
  if (clock_getcpuclockid(pid_, &clock) == 0 && clock_gettime(clock, &used) == 0) {
    return absl::DurationFromTimespec(used);
  }
  return absl::UnavailableError("no CPU clock of the server: it has ended");
}

}  // namespace normd::bench
