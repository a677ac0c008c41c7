#include "server/session/durable/answer_threads.h"

#include <functional>
#include <utility>

namespace normd {

AnswerThreads::AnswerThreads(int threads) {
  for (int i = 0; i < threads; ++i) {
    lanes_.push_back(std::make_unique<Lane>());
    lanes_.back()->thread = std::thread([lane = lanes_.back().get()] { Run(lane); });
  }
}

AnswerThreads::~AnswerThreads() {
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    {
      MutexLock lock(lane->mu);
      lane->stopping = true;
    }
    lane->ready.SignalAll();
    lane->thread.join();
  }
}

size_t AnswerThreads::ThreadOf(std::string_view id) const { return std::hash<std::string_view>()(id) % lanes_.size(); }

void AnswerThreads::Post(size_t thread, Answer answer) {
  Lane& lane = *lanes_[thread];
  bool first = false;
  {
    MutexLock lock(lane.mu);
    first = lane.answers.empty();
    lane.answers.push_back(std::move(answer));
  }
  if (first) lane.ready.Signal();  // who wakes finds the mutex free
}

void AnswerThreads::Run(Lane* lane) {
  while (true) {
    std::deque<Answer> answers;
    {
      MutexLock lock(lane->mu);
      while (lane->answers.empty() && !lane->stopping) lane->ready.Wait(lane->mu);
      if (lane->answers.empty()) return;
      answers.swap(lane->answers);
    }
    for (Answer& answer : answers) answer();
  }
}

}  // namespace normd
