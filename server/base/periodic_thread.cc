#include "server/base/periodic_thread.h"

#include <utility>

#include "server/base/steady_time.h"

namespace normd {

PeriodicThread::PeriodicThread(absl::Duration interval, std::function<void()> work)
    : interval_(interval), work_(std::move(work)), thread_([this] { Run(); }) {}

PeriodicThread::~PeriodicThread() {
  {
    MutexLock lock(mu_);
    ending_ = true;
    ended_.Signal();
  }
  thread_.join();
}

void PeriodicThread::Run() {
  while (true) {
    {
      MutexLock lock(mu_);
      const absl::Time next = SteadyNow() + interval_;
      while (!ending_ && SteadyNow() < next) ended_.WaitFor(mu_, next - SteadyNow());
      if (ending_) return;
    }
    work_();
  }
}

}  // namespace normd
