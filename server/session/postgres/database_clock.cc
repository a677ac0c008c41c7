#include "server/session/postgres/database_clock.h"

namespace normd {

absl::Time DatabaseClock::Now() {
  MutexLock lock(mu_);
  return said_ + absl::FromChrono(std::chrono::steady_clock::now() - when_);
}

void DatabaseClock::Set(absl::Time now) {
  MutexLock lock(mu_);
  said_ = now;
  when_ = std::chrono::steady_clock::now();
}

}  // namespace normd
