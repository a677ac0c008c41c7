#include "tests/crash/server_process.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/time/clock.h"

namespace normd::crash {

ServerProcess::ServerProcess(const std::string& program, const std::string& folder, const std::string& name,
                             std::vector<std::string> options)
    : socket_(folder + "/" + name + ".sock"), log_(folder + "/" + name + ".log"), target_("unix:" + socket_) {
  arguments_ = {program, "--listen=" + target_, "--log_level=warn"};
  arguments_.insert(arguments_.end(), options.begin(), options.end());
}

void ServerProcess::Start() { process_ = std::make_unique<Process>(arguments_, log_); }

absl::StatusOr<std::unique_ptr<Client>> ServerProcess::WaitUntilItAnswers(absl::Duration patience) {
  const absl::Time deadline = absl::Now() + patience;
  // A channel that was refused once waits before it tries again, so the socket is asked first.
  while (!Accepts()) {
    if (process_->Ended()) return absl::UnavailableError("normd ended: " + LogTail());
    if (absl::Now() > deadline) return absl::UnavailableError("normd does not come up: " + LogTail());
    absl::SleepFor(absl::Milliseconds(1));
  }
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(target_);
  if (!client.ok()) return client;
  const absl::StatusOr<v1::DescribeResponse> answer = (*client)->Describe();
  if (!answer.ok()) return answer.status();
  return client;
}

bool ServerProcess::Accepts() const {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket_.c_str(), std::min(socket_.size(), sizeof(address.sun_path) - 1));
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool accepted = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return accepted;
}

bool ServerProcess::Kill() {
  const bool was_running = process_->Kill();
  process_ = nullptr;
  return was_running;
}

int ServerProcess::Stop(absl::Duration patience) {
  process_->Signal(SIGTERM);
  const int status = process_->Wait(patience);
  process_ = nullptr;
  return status;
}

std::string ServerProcess::LogTail() const {
  std::ifstream file(log_);
  std::stringstream text;
  text << file.rdbuf();
  constexpr size_t kTail = 2000;
  const std::string all = text.str();
  return all.substr(all.size() > kTail ? all.size() - kTail : 0);
}

}  // namespace normd::crash
