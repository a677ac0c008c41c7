// A real normd on a Unix socket, started by the parent and killed by it.
// Threads: as Process.
#ifndef NORMD_TESTS_CRASH_SERVER_PROCESS_H_
#define NORMD_TESTS_CRASH_SERVER_PROCESS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "tests/crash/process.h"

namespace normd::crash {

class ServerProcess {
 public:
  // Its socket and its log are NAME.sock and NAME.log in `folder`.
  ServerProcess(const std::string& program, const std::string& folder, const std::string& name,
                std::vector<std::string> options);

  void Start();
  bool running() const { return process_ != nullptr; }
  const std::string& target() const { return target_; }
  // A client of its own, once it has answered a request. UNAVAILABLE when it ended or is not up within `patience`.
  absl::StatusOr<std::unique_ptr<Client>> WaitUntilItAnswers(absl::Duration patience);
  void Signal(int number) { process_->Signal(number); }
  // kill -9; false when it had ended by itself.
  bool Kill();
  // SIGTERM; the exit status.
  int Stop(absl::Duration patience);
  // The end of its log.
  std::string LogTail() const;

 private:
  bool Accepts() const;

  const std::string socket_, log_, target_;
  std::vector<std::string> arguments_;
  std::unique_ptr<Process> process_;
};

}  // namespace normd::crash

#endif  // NORMD_TESTS_CRASH_SERVER_PROCESS_H_
