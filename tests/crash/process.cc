#include "tests/crash/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/time/clock.h"

namespace normd::crash {

namespace {

// Between fork and exec: only calls that are safe there.
[[noreturn]] void Become(char* const* argv, int output, bool errors_too) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(output, STDOUT_FILENO);
  if (errors_too) dup2(output, STDERR_FILENO);
  execv(argv[0], argv);
  _exit(127);
}

}  // namespace

Process::Process(const std::vector<std::string>& argv, const std::string& output) {
  int ends[2] = {-1, -1};
  if (output.empty()) {
    if (pipe2(ends, O_CLOEXEC) != 0) std::perror("pipe2");
    pipe_ = ends[0];
  } else {
    ends[1] = open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (ends[1] < 0) std::perror(output.c_str());
  }
  std::vector<char*> arguments;
  arguments.reserve(argv.size() + 1);
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) Become(arguments.data(), ends[1], !output.empty());
  if (pid_ < 0) {
    std::perror("fork");
    ended_ = true;
  }
  close(ends[1]);
}

Process::~Process() {
  Kill();
  if (pipe_ >= 0) close(pipe_);
}

bool Process::ReadUntil(absl::Time deadline, const std::function<void(std::string_view)>& take) {
  char buffer[1 << 16];
  while (true) {
    const absl::Duration left = std::max(deadline - absl::Now(), absl::ZeroDuration());
    const timespec timeout = absl::ToTimespec(std::min(left, absl::Minutes(10)));
    pollfd ready = {.fd = pipe_, .events = POLLIN, .revents = 0};
    if (ppoll(&ready, 1, &timeout, nullptr) <= 0) return true;
    const ssize_t size = read(pipe_, buffer, sizeof(buffer));
    if (size <= 0) return false;
    take({buffer, static_cast<size_t>(size)});
    if (left <= absl::ZeroDuration()) return true;
  }
}

void Process::Signal(int number) const {
  if (!ended_) kill(pid_, number);
}

bool Process::Kill() {
  const bool running = !Ended();
  if (running) {
    kill(pid_, SIGKILL);
    Reap(0);
  }
  return running;
}

bool Process::Ended() { return ended_ || Reap(WNOHANG); }

int Process::Wait(absl::Duration patience) {
  const absl::Time deadline = absl::Now() + patience;
  while (!Ended()) {
    if (absl::Now() > deadline) return -1;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return status_;
}

bool Process::Reap(int options) {
  int status = 0;
  if (waitpid(pid_, &status, options) != pid_) return false;
  ended_ = true;
  status_ = status;
  return true;
}

}  // namespace normd::crash
