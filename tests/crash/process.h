// A program that the parent started: its pid, and what it writes. Nothing else is ever signalled. A program ends with
// its Process, and with the parent, however that ends.
// Threads: a Process belongs to one thread; start programs from the main thread alone, for whose life they live.
#ifndef NORMD_TESTS_CRASH_PROCESS_H_
#define NORMD_TESTS_CRASH_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace normd::crash {

class Process {
 public:
  // Standard output goes to `output`, a file that is appended to, or, when it is empty, to a pipe that Read reads.
  // Standard error is the parent's, or `output`. REQUIRES: argv[0] is the path of a program.
  Process(const std::vector<std::string>& argv, const std::string& output = "");
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // Hands what is in the pipe to `take`, until `deadline` or the end. False: the end.
  bool ReadUntil(absl::Time deadline, const std::function<void(std::string_view)>& take);

  void Signal(int number) const;
  // kill -9, and waits. Returns false when the program had ended before, by itself.
  bool Kill();
  // The exit status as waitpid has it, or -1 when it still runs after `patience`.
  int Wait(absl::Duration patience);
  bool Ended();

 private:
  bool Reap(int options);

  pid_t pid_ = -1;
  int pipe_ = -1;
  bool ended_ = false;
  int status_ = -1;
};

}  // namespace normd::crash

#endif  // NORMD_TESTS_CRASH_PROCESS_H_
