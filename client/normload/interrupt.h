// SIGINT and SIGTERM while normload measures: the first ends the measurement, so that what was measured is reported,
// and the second ends the process at once. In the path: normload.cc holds an InterruptGuard, the loops ask
// InterruptedAt.
#ifndef NORMD_CLIENT_NORMLOAD_INTERRUPT_H_
#define NORMD_CLIENT_NORMLOAD_INTERRUPT_H_

#include <signal.h>

#include <chrono>
#include <optional>
#include <string>

namespace normd::client {

// When the first signal came; nullopt: none has come. Safe from any thread.
std::optional<std::chrono::steady_clock::time_point> InterruptedAt();

// Its number, 0 for none.
int InterruptSignal();

// "SIGINT" or "SIGTERM".
std::string InterruptName(int signal);

// Sleeps until `until`, or until a signal has come, which is noticed within 50 ms.
void SleepUntilOrInterrupt(std::chrono::steady_clock::time_point until);

// Catches the signals until it is destroyed. Also where they were ignored, as for a job in the background of a script:
// who sends one then wants the report. One at a time in a process.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction int_before_ {};
  struct sigaction term_before_ {};
};

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMLOAD_INTERRUPT_H_
