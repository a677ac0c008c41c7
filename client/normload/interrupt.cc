#include "client/normload/interrupt.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>

namespace normd::client {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook(50);

// All that a handler of signals can reach. The time is set before the signal.
std::atomic<int64_t> interrupted_at{0};
std::atomic<int> interrupt_signal{0};
static_assert(std::atomic<int64_t>::is_always_lock_free, "as in a handler of signals it must be");

void NoteInterrupt(int signal) {
  interrupted_at.store(Clock::now().time_since_epoch().count());
  interrupt_signal.store(signal);
  // The second signal ends the process, as it would without this program's handler.
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  sigaction(SIGINT, &usual, nullptr);
  sigaction(SIGTERM, &usual, nullptr);
}

}  // namespace

std::optional<Clock::time_point> InterruptedAt() {
  if (interrupt_signal.load() == 0) return std::nullopt;
  return Clock::time_point(Clock::duration(interrupted_at.load()));
}

int InterruptSignal() { return interrupt_signal.load(); }

std::string InterruptName(int signal) { return signal == SIGINT ? "SIGINT" : "SIGTERM"; }

void SleepUntilOrInterrupt(Clock::time_point until) {
  for (Clock::time_point now = Clock::now(); now < until && !InterruptedAt().has_value(); now = Clock::now()) {
    std::this_thread::sleep_until(std::min(until, now + kLook));
  }
}

InterruptGuard::InterruptGuard() {
  interrupt_signal.store(0);
  struct sigaction ours {};
  ours.sa_handler = &NoteInterrupt;
  sigaction(SIGINT, &ours, &int_before_);
  sigaction(SIGTERM, &ours, &term_before_);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &int_before_, nullptr);
  sigaction(SIGTERM, &term_before_, nullptr);
  interrupt_signal.store(0);
}

}  // namespace normd::client
