#include "server/base/work_pool.h"

#include <algorithm>
#include <utility>

#include "server/base/cgroup.h"

namespace normd {
namespace {

// The pool to which the current thread belongs, if any. Work that such a thread hands to its own pool runs at once.
thread_local const WorkPool* own_pool = nullptr;

}  // namespace

WorkPool::WorkPool(int threads, size_t max_waiting) : max_waiting_(max_waiting) {
  for (int i = 0; i < std::max(1, threads); ++i) threads_.emplace_back([this] { Serve(); });
}

WorkPool::~WorkPool() {
  {
    MutexLock lock(mu_);
    ends_ = true;
  }
  changed_.SignalAll();
  for (std::thread& thread : threads_) thread.join();
}

void WorkPool::Run(Work work) {
  if (own_pool != this && Push(work)) return changed_.Signal();
  work();
}

void WorkPool::RunIfLarge(int64_t bytes, Work work) {
  if (bytes < kLargeBytes) return work();
  Run(std::move(work));
}

bool WorkPool::Push(Work& work) {
  MutexLock lock(mu_);
  if (waiting_.size() >= max_waiting_) return false;
  waiting_.push_back(std::move(work));
  return true;
}

WorkPool::Work WorkPool::Take() {
  MutexLock lock(mu_);
  while (waiting_.empty()) {
    if (ends_) return nullptr;
    changed_.Wait(mu_);
  }
  Work next = std::move(waiting_.front());
  waiting_.pop_front();
  return next;
}

void WorkPool::Serve() {
  own_pool = this;
  while (Work work = Take()) work();
}

int WorkPool::DefaultThreads() { return std::clamp(AllowedCpus() / 2, 2, 8); }

}  // namespace normd
