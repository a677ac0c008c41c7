#include "server/session/durable/write_thread.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"

namespace normd {

WriteThread::WriteThread(SessionTable* table, std::function<void()> on_end)
    : table_(table), on_end_(std::move(on_end)), thread_([this] { Run(); }) {}

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
  return transactions_.empty() || transactions_.back().parts.empty();
}

void WriteThread::Add(Part part) {
  {
    MutexLock lock(mu_);
    if (!open_) transactions_.emplace_back();
    transactions_.back().parts.push_back(part);
  }
  if (!open_) ++begun_;
  open_ = true;
  changed_.SignalAll();
}

void WriteThread::Close(Part rest) {
  if (!rest.empty()) Add(rest);
  if (!open_) return;
  open_ = false;
  {
    MutexLock lock(mu_);
    transactions_.back().closed = true;
  }
  changed_.SignalAll();
}

bool WriteThread::ended() const {
  MutexLock lock(mu_);
  return !transactions_.empty() && transactions_.front().result.has_value();
}

WriteThread::Result WriteThread::Take() {
  MutexLock lock(mu_);
  while (!transactions_.front().result.has_value()) changed_.Wait(mu_);
  Result result = *std::move(transactions_.front().result);
  transactions_.pop_front();
  ++taken_;
  return result;
}

void WriteThread::Run() {
  while (true) {
    Transaction* next = nullptr;  // a deque keeps its elements in place
    {
      MutexLock lock(mu_);
      while (true) {
        const auto found = std::find_if(transactions_.begin(), transactions_.end(),
                                        [](const Transaction& one) { return !one.result.has_value(); });
        if (found != transactions_.end()) {
          next = &*found;
          break;
        }
        if (stopping_) return;
        changed_.Wait(mu_);
      }
    }
    const absl::Time begun = absl::Now();
    Result result = {.versions = table_->Write([this, next] { return NextPart(next); }), .begun = begun};
    result.table_failed = table_->failed();
    {
      MutexLock lock(mu_);
      next->result = std::move(result);
    }
    changed_.SignalAll();
    on_end_();
  }
}

WriteThread::Part WriteThread::NextPart(Transaction* transaction) {
  MutexLock lock(mu_);
  while (transaction->parts.empty() && !transaction->closed) changed_.Wait(mu_);
  if (transaction->parts.empty()) return {};
  const Part part = transaction->parts.front();
  transaction->parts.pop_front();
  return part;
}

}  // namespace normd
