#include "server/session/durable/write_thread.h"

#include <utility>

namespace normd {

WriteThread::WriteThread(SessionTable* table) : table_(table), thread_([this] { Run(); }) {}

WriteThread::~WriteThread() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  changed_.SignalAll();
  thread_.join();
}

bool WriteThread::wants_rows() const {
  MutexLock lock(mu_);
  return parts_.empty();
}

void WriteThread::Add(Part part) {
  open_ = true;
  {
    MutexLock lock(mu_);
    parts_.push_back(part);
  }
  changed_.SignalAll();
}

WriteThread::Result WriteThread::Finish(Part rest) {
  if (!rest.empty()) Add(rest);
  open_ = false;
  MutexLock lock(mu_);
  finishing_ = true;
  changed_.SignalAll();
  while (!result_.has_value()) changed_.Wait(mu_);
  finishing_ = false;
  parts_.clear();  // an error left some
  return *std::exchange(result_, std::nullopt);
}

void WriteThread::Run() {
  while (true) {
    {
      MutexLock lock(mu_);
      // A transaction that failed early is over, though its last parts may still come.
      while ((parts_.empty() || result_.has_value()) && !stopping_) changed_.Wait(mu_);
      if (stopping_) return;
    }
    Result result = table_->Write([this] { return NextPart(); });
    {
      MutexLock lock(mu_);
      result_ = std::move(result);
    }
    changed_.SignalAll();
  }
}

WriteThread::Part WriteThread::NextPart() {
  MutexLock lock(mu_);
  while (parts_.empty() && !finishing_) changed_.Wait(mu_);
  if (parts_.empty()) return {};
  const Part part = parts_.front();
  parts_.pop_front();
  return part;
}

}  // namespace normd
