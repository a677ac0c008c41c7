#include "kernels/cpu/parallel.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "kernels/summation_order.h"

namespace normd::cpu {
namespace {

// How long a thread looks for work before it sleeps: as long as waking it may take, so that it wastes at most twice the
// time that the best decision would have wasted.
constexpr std::chrono::microseconds kSpin(50);

// The number of loops that this thread is inside.
thread_local int depth_of_thread = 0;

// Calls `done` until it returns true, but for kSpin at most, and returns its last answer. The awaited thread may be
// queued on this core, so the core is offered to other threads between two calls.
template <typename Done>
bool SpinUntil(Done done) {
  const auto limit = std::chrono::steady_clock::now() + kSpin;
  do {
    if (done()) return true;
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < limit);
  return done();
}

}  // namespace

// The cores that a thread may use; narrowed while it is woken, see KeepOffThisCore.
class ThreadAffinity {
 public:
  // Keeps the thread, which sleeps, off the core that the caller runs on, until it calls Restore. Linux may otherwise
  // queue it there, where it ran last, behind the caller, while another core is idle: for milliseconds. Does nothing
  // where the system does not allow it.
  void KeepOffThisCore(pthread_t thread) {
    const int here = sched_getcpu();
    if (pthread_getaffinity_np(thread, sizeof(allowed_), &allowed_) != 0) return;
    if (here < 0 || here >= CPU_SETSIZE || !CPU_ISSET(here, &allowed_) || CPU_COUNT(&allowed_) < 2) return;
    cpu_set_t others = allowed_;
    CPU_CLR(here, &others);
    narrowed_ = pthread_setaffinity_np(thread, sizeof(others), &others) == 0;
  }

  // Lets this thread use all its cores again.
  void Restore() {
    if (narrowed_) pthread_setaffinity_np(pthread_self(), sizeof(allowed_), &allowed_);
    narrowed_ = false;
  }

 private:
  cpu_set_t allowed_ = {};
  bool narrowed_ = false;
};

// A thread of the pool. Guarded by mu_, but for the thread itself.
struct WorkerPool::Worker {
  std::thread thread;
  std::condition_variable wake;
  bool sleeps = false;
  ThreadAffinity affinity;
};

// A loop, on the stack of the thread that runs ParallelFor. Threads enter and leave it with mu_ held, and its caller
// removes it from loops_ before it waits for the threads inside. The items are cut into spans. Each thread begins in a
// span of its own, because processors fetch ahead the memory behind the range that was read last, and then helps with
// the other spans.
class WorkerPool::Loop {
 public:
  Loop(int64_t n, int64_t grain, int threads, absl::FunctionRef<void(int64_t, int64_t)> body)
      : depth(depth_of_thread),
        n_(n),
        grain_(grain),
        spans_(std::min<int64_t>({order::CeilDiv(n, grain), threads, kMaxSpans})),
        span_items_(order::CeilDiv(order::CeilDiv(n, grain), spans_) * grain),
        body_(body) {
    for (int64_t span = 0; span < spans_; ++span) next_[At(span)].item = span * span_items_;
  }

  bool empty() const {
    for (int64_t span = 0; span < spans_; ++span) {
      if (next_[At(span)].item.load(std::memory_order_relaxed) < End(span)) return false;
    }
    return true;
  }

  // Whether a body ran out of memory: final once no thread is inside.
  bool out_of_memory() const { return out_of_memory_.load(std::memory_order_relaxed); }

  // Takes ranges until none is left.
  void TakeRanges() {
    ++depth_of_thread;
    const int64_t own = entered_.fetch_add(1, std::memory_order_relaxed);
    for (int64_t i = 0; i < spans_; ++i) TakeSpan((own + i) % spans_);
    --depth_of_thread;
  }

  const int depth;                  // the number of loops that its caller is inside
  std::atomic<int64_t> helpers{0};  // threads inside but for the caller

 private:
  static constexpr int64_t kMaxSpans = 16;
  struct alignas(64) Next {
    std::atomic<int64_t> item{0};  // the first item of the span that no thread has claimed
  };

  static size_t At(int64_t span) { return static_cast<size_t>(span); }
  int64_t End(int64_t span) const { return std::min(n_, (span + 1) * span_items_); }

  void TakeSpan(int64_t span) {
    const int64_t end = End(span);
    std::atomic<int64_t>& next = next_[At(span)].item;
    for (int64_t begin = 0; (begin = next.fetch_add(grain_, std::memory_order_relaxed)) < end;) {
      if (out_of_memory()) continue;
      // An exception that left a thread of the pool would end the process, and one that left the caller's would leave
      // the other threads inside a loop that is gone.
      try {
        body_(begin, std::min(end, begin + grain_));
      } catch (const std::bad_alloc&) {
        out_of_memory_.store(true, std::memory_order_relaxed);
      }
    }
  }

  const int64_t n_, grain_, spans_, span_items_;
  const absl::FunctionRef<void(int64_t, int64_t)> body_;
  std::atomic<int64_t> entered_{0};
  std::atomic<bool> out_of_memory_{false};
  std::array<Next, kMaxSpans> next_;
};

WorkerPool::WorkerPool(int threads) : threads_(std::max(1, threads)) {}

WorkerPool::~WorkerPool() {
  {
    Lock lock(mu_);
    closing_ = true;
    while (!sleeping_.empty()) WakeOne(lock);
  }
  for (const auto& worker : workers_) worker->thread.join();
}

void WorkerPool::StartThreads(Lock& /*lock*/) {
  while (workers_.size() < static_cast<size_t>(threads_)) {
    workers_.push_back(std::make_unique<Worker>());
    Worker* const worker = workers_.back().get();
    worker->thread = std::thread([this, worker] { Work(worker); });
  }
}

void WorkerPool::Enqueue(absl::AnyInvocable<void()> task, int64_t helpers) {
  Lock lock(mu_);
  StartThreads(lock);
  tasks_.push_back({std::move(task), helpers});
  news_.fetch_add(1, std::memory_order_relaxed);
  WakeOne(lock);
}

void WorkerPool::ParallelFor(int64_t n, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body) {
  if (n <= 0) return;
  if (threads_ == 1 || n <= grain) {
    // Ranges of `grain` here, too: one thread must walk the same code as many threads.
    for (int64_t i = 0; i < n; i += grain) body(i, std::min(n, i + grain));
    return;
  }
  Loop loop(n, grain, threads_, body);
  {
    Lock lock(mu_);
    StartThreads(lock);
    loops_.push_back(&loop);
    news_.fetch_add(1, std::memory_order_relaxed);
    wanted_ = std::max(wanted_, std::min<int64_t>(threads_ - 1, (n - 1) / grain));
    WakeHelpers(lock);
    if (loop.depth > 0 && finishing_ > 0) finish_.notify_all();
  }
  loop.TakeRanges();
  Finish(&loop);
  if (loop.out_of_memory()) throw std::bad_alloc();
}

void WorkerPool::Finish(Loop* loop) {
  Lock lock(mu_);
  std::erase(loops_, loop);
  const auto done = [loop] { return loop->helpers.load(std::memory_order_acquire) == 0; };
  while (!done()) {
    if (Loop* const inner = FindLoop(loop->depth, lock); inner != nullptr) {
      Help(inner, lock);
      continue;
    }
    lock.unlock();
    if (SpinUntil(done)) return;
    lock.lock();
    ++finishing_;
    finish_.wait(lock, [&] { return done() || FindLoop(loop->depth, lock) != nullptr; });
    --finishing_;
  }
}

WorkerPool::Loop* WorkerPool::FindLoop(int depth, Lock& /*lock*/) const {
  const auto found = std::find_if(loops_.begin(), loops_.end(),
                                  [depth](const Loop* loop) { return loop->depth > depth && !loop->empty(); });
  return found == loops_.end() ? nullptr : *found;
}

void WorkerPool::Help(Loop* loop, Lock& lock) {
  loop->helpers.fetch_add(1, std::memory_order_relaxed);
  lock.unlock();
  loop->TakeRanges();
  lock.lock();
  // When the last helper has left, the caller may return, and the loop be gone.
  if (loop->helpers.fetch_sub(1, std::memory_order_release) == 1 && finishing_ > 0) finish_.notify_all();
}

void WorkerPool::WakeOne(Lock& /*lock*/) {
  if (sleeping_.empty()) return;
  Worker* const worker = sleeping_.back();
  sleeping_.pop_back();
  worker->sleeps = false;
  worker->wake.notify_one();
}

void WorkerPool::WakeHelpers(Lock& lock) {
  for (int i = 0; i < 2 && wanted_ > 0 && !sleeping_.empty(); ++i) {
    --wanted_;
    Worker* const worker = sleeping_.back();
    worker->affinity.KeepOffThisCore(worker->thread.native_handle());
    WakeOne(lock);
  }
  if (sleeping_.empty()) wanted_ = 0;
}

void WorkerPool::Sleep(Worker* worker, Lock& lock) {
  worker->sleeps = true;
  sleeping_.push_back(worker);
  worker->wake.wait(lock, [worker] { return !worker->sleeps; });
  worker->affinity.Restore();
  WakeHelpers(lock);
}

void WorkerPool::RunTask(Lock& lock) {
  Task task = std::move(tasks_.front());
  tasks_.pop_front();
  ++running_;
  wanted_ = std::max(wanted_, std::min<int64_t>(threads_ - 1, task.helpers));
  WakeHelpers(lock);
  lock.unlock();
  std::move(task.run)();
  task.run = nullptr;  // its captures are destroyed without the lock
  lock.lock();
  --running_;
}

void WorkerPool::Work(Worker* worker) {
  Lock lock(mu_);
  bool may_spin = false;  // this thread was woken to help, or has just helped: the running task may have a loop soon
  for (;;) {
    if (!tasks_.empty()) {
      RunTask(lock);
      may_spin = false;
    } else if (Loop* const loop = FindLoop(-1, lock); loop != nullptr) {
      Help(loop, lock);
      may_spin = true;
    } else if (closing_) {
      return;
    } else if (may_spin && running_ > 0) {
      const uint64_t seen = news_.load(std::memory_order_relaxed);
      lock.unlock();
      may_spin = SpinUntil([&] { return news_.load(std::memory_order_relaxed) != seen; });
      lock.lock();
    } else {
      Sleep(worker, lock);
      may_spin = true;
    }
  }
}

}  // namespace normd::cpu
