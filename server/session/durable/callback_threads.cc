#include "server/session/durable/callback_threads.h"

#include <functional>
#include <utility>

namespace normd {

CallbackThreads::CallbackThreads(int threads) {
  for (int i = 0; i < threads; ++i) {
    workers_.push_back(std::make_unique<Worker>());
    workers_.back()->thread = std::thread([worker = workers_.back().get()] { Run(worker); });
  }
}

CallbackThreads::~CallbackThreads() { Stop(); }

void CallbackThreads::Stop() {
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (!worker->thread.joinable()) continue;
    {
      MutexLock lock(worker->mu);
      worker->stopping = true;
    }
    worker->ready.SignalAll();
    worker->thread.join();
  }
}

size_t CallbackThreads::ThreadOf(std::string_view id) const {
  return std::hash<std::string_view>()(id) % workers_.size();
}

void CallbackThreads::Post(size_t thread, Answer answer) {
  Worker& worker = *workers_[thread];
  bool first = false;
  {
    MutexLock lock(worker.mu);
    first = worker.answers.empty();
    worker.answers.push_back(std::move(answer));
  }
  if (first) worker.ready.Signal();  // after the lock, so that the thread that wakes finds the mutex free
}

void CallbackThreads::Run(Worker* worker) {
  while (true) {
    std::deque<Answer> answers;
    {
      MutexLock lock(worker->mu);
      while (worker->answers.empty() && !worker->stopping) worker->ready.Wait(worker->mu);
      if (worker->answers.empty()) return;
      answers.swap(worker->answers);
    }
    for (Answer& answer : answers) answer();
  }
}

}  // namespace normd
